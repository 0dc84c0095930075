# SPDX-License-Identifier: Apache-2.0
"""Files of systems."""

import yaml

#: The facts of a host with one NUMA node.
FACTS = {
    "source": "order",
    "processor": "x",
    "packages": 1,
    "numa_nodes": 1,
    "cores_per_numa_node": 2,
    "threads_per_core": 1,
    "memory_per_numa_node": "4 GiB",
}


def system_file(folder, name="s", **keys):
    """Write the file of a system to *folder*, of one NUMA node unless *keys* say otherwise; return its path."""
    data = {"name": name, "description": "x", "hostnames": ["x"], "facts": FACTS, "references": []}
    data["partitions"] = [{"name": "p", "scheduler": "local"}]
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**data, **keys}, sort_keys=False))
    return file

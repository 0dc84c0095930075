# SPDX-License-Identifier: Apache-2.0
"""Lines of maps and numa_maps, as the kernel writes them."""

import mmap
import os

from firsttouch.host.pages import file_bytes, file_mapping, mapped_pages, node_pages


def test_pages_count_in_units_of_4_kib():
    line = "7f1000000000 bind:0-1 file=/x mapped=3 N0=1 N1=2 kernelpagesize_kB="
    assert [node_pages(line + size) for size in ("4", "64", "2048")] == [{0: n, 1: 2 * n} for n in (1, 16, 512)]
    assert node_pages("7f1000000000 default") == {}


def test_a_file_mapping_this_process(tmp_path):
    file = tmp_path / "two words"
    file.write_bytes(bytes(3 * mmap.PAGESIZE))
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as held:
        assert held[::4096]
        with open("/proc/self/maps") as maps:  # noqa: PTH123
            lines = maps.readlines()
        (text,) = (line for line in lines if line.rstrip().endswith(str(file)))
        assert file_bytes(text) == 3 * mmap.PAGESIZE
        assert 3 * mmap.PAGESIZE < file_bytes("".join(lines)) < 1 << 40
        (mapping,) = (m for m in map(file_mapping, lines) if m and m.path == str(file))
        assert mapping.file[1] == file.stat().st_ino
        with open("/proc/self/numa_maps") as text:  # noqa: PTH123
            pages = mapped_pages(text.read(), {mapping.address})
    assert sum(pages.values()) == 3 * os.sysconf("SC_PAGESIZE") // 4096
    assert file_mapping("Rss:                1704 kB") is None

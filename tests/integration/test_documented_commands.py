# SPDX-License-Identifier: Apache-2.0
"""Every command in README.md and the manual is run once, by an installed copy or by another test.

COVERED names the tests that run a command in the same form, or with Slurm, an image, Spack or an emulated machine.
A page states why no test runs a command. tests/prose/test_examples.py parses all of them.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

import documented
from documented import PAGES, ROOT, Command
from factories import held_programs
from factories.genomes import PART, records
from factories.processes import captured, write_program
from firsttouch.genomics import aligners
from firsttouch.genomics.aligners import aligner

#: Systems to which this host does not belong.
SITE = "--system (amd-opteron|rome)"
#: File -> commands -> the test that runs them, perhaps with another system or number of hosts.
COVERED = {
    "integration/test_documented_commands.py": {
        r"make run": "test_make_run",
    },
    "integration/test_packaging.py": {
        r"make dist": "test_source_archives_have_all_that_a_build_needs",
        r"pip install dist/\*\.whl": "test_the_light_installation_measures_and_places",
        r'pip install "\$\(echo dist/firsttouch-\*\.whl\)\[report\]" .*': (
            "test_probe_is_used_without_activating_the_environment"
        ),
        r"uvx --from dist/firsttouch-\*\.whl .*|uv tool .*": "test_a_command_runs_without_an_environment",
    },
    "integration/test_setup.py": {r"make setup": "test_a_second_run_does_nothing"},
    "studies/test_repeat_study.py": {
        r"make study( STUDY=.*)?": "test_a_study_is_repeated_and_continues_with_its_missing_runs"
    },
    "studies/test_lock_variants.py": {
        r"make study-programs( \w+=\S+)?": "test_the_distributions_source_is_built_once"
    },
    "integration/test_settings.py": {
        r"\. \.venv/bin/activate": "test_a_fresh_shell_with_the_environment_activated"
    },
    "integration/test_reframe_checks.py": {
        r"reframe -c reframe/ -r --system amd-opteron": "test_a_system_of_a_cluster_without_slurm_fails_once",
    },
    "integration/test_check_command.py": {
        r"firsttouch check --seconds \d+": "test_this_host_is_measured_and_judged_by_a_reference"
    },
    "integration/test_tables_of_runs.py": {
        r"firsttouch run -o a\.bam --sort --multiqc .*": "test_an_aligner_states_its_time_and_placement"
    },
    "integration/test_exec.py": {
        r"firsttouch run --on 0 --verify --records bench\.jsonl -- \./benchmark .*": (
            "test_on_one_numa_node_pages_must_lie_there"
        ),
        r"firsttouch run --json \S+ -- \./program .*": (
            "test_the_json_document_is_the_last_line_beside_what_the_program_prints"
        ),
    },
    "integration/test_mpi.py": {
        r"mpirun --bind-to none .*firsttouch run .*": "test_ranks_of_mpirun_divide_the_host"
    },
    "integration/test_auto.py": {
        r"firsttouch run -- bwa mem .* > out\.sam": "test_trials_are_made_once_and_within_the_budget"
    },
    "integration/test_index_copies.py": {
        r"firsttouch run 2x-bound\+interleaved-index -- .*": "test_the_users_command_in_one_instance",
        r"firsttouch run 8x-bound\+node-index .*": "test_the_alignments_are_those_of_a_run_without_copies",
    },
    "integration/test_run_command.py": {
        r"firsttouch run \S+ --aligner \S+ --dataset lambda --reads-per-thread \d+": "test_throughput",
        r"firsttouch run \S+ --aligner \S+ --dataset \w+ --repetitions \d": "test_repetitions_text_and_counters",
        r"firsttouch run \S+ --aligner \S+ --index IDX --reads r1\.fq -o out\.sam -- .*": (
            "test_own_options_of_the_aligner_go_to_every_instance"
        ),
    },
    "integration/test_advise.py": {
        r"firsttouch advise --aligner bowtie2 .* -- .*": "test_advice_as_text",
        r"firsttouch advise --aligner \S+ .* --budget 1": "test_advice_as_text",
        r"firsttouch advise --repetitions 2 -- .*": "test_a_program_under_the_policies",
    },
    "integration/test_installed.py": {
        r"reframe -c \$\(firsttouch path checks\) -l .*": "test_reframe_finds_the_systems"
    },
    "slurm/test_slurm_drills.py": {
        r"sbatch (-p rome -w \S+ )?-N 8 slurm/validate.*": "test_defects_of_memory_and_links"
    },
    "slurm/test_slurm_templates.py": {
        r"(cd jobs && )?sbatch slurm/characterize.*": "test_characterize_measures_all_aspects_of_one_host",
        r"sbatch slurm/strategy.*": "test_every_host_of_an_array_runs_all_scenarios",
    },
    "slurm/test_slurm_tasks.py": {
        r"srun -n \d --cpus-per-task=8 firsttouch run .*": "test_tasks_of_two_hosts",
        r"srun -n 8 --error=.* firsttouch run .*": "test_tasks_of_two_hosts",
        r"srun .*--mpi=pmi2 .*firsttouch run .*": "test_ranks_of_mpi_on_two_hosts",
        r"srun .*--mpi=pmix firsttouch inside .*": "test_ranks_of_mpi_in_containers_of_two_hosts",
    },
    "slurm/test_slurm_sequences.py": {
        r"firsttouch campaign submit .*": "test_hosts_with_a_domain_are_validated_drained_and_unhealthy",
        rf"firsttouch validate {SITE} .*": (
            "test_job_and_command_agree_on_a_host_in_a_reservation_which_the_job_drains"
        ),
    },
    "slurm/test_slurm_quarantine.py": {
        r"firsttouch fleet (hold|release|tend|status).*": "test_a_bad_host_is_drained_and_a_repaired_one_released",
        r"(sbatch --exclude=\$\()?firsttouch fleet exclude.*": ("test_a_bad_host_is_listed_until_it_is_released"),
    },
    "unit/test_bench_replay.py": {r"make bench BENCH=replay": "test_the_benchmark_prints_the_choice_in_each_cell"},
    "studies/test_paper_page.py": {r"make paper": "test_the_folder_holds_the_page_and_the_claims"},
    "unit/test_report_fleet.py": {
        r"firsttouch report reports/out/campaigns/.*": "test_hosts_that_a_campaign_lost_are_listed_first",
        r"firsttouch report --compare \S+ \S+ -o \w+": "test_slower_memory_is_found_and_nothing_else",
    },
    "unit/test_fleet_quarantine.py": {r"firsttouch fleet due .*": "test_why_hosts_are_due_by_the_log"},
    "unit/test_perflogs.py": {r"firsttouch .* --perflogs .*": "test_a_slow_host_is_found_and_no_log_drains"},
    "unit/test_history.py": {
        r"firsttouch (fleet history|report shared/.*)": "test_a_report_lists_changes_and_the_command_offenders"
    },
    "unit/test_baseline.py": {rf"firsttouch baseline {SITE} .*": "test_json_has_all"},
    "containers/test_containers_image.py": {
        r"make images( IMAGE=\w+)?": "test_checksum_and_packages_lie_beside_it",
        r"make run BACKEND=apptainer": "test_every_check_runs_inside_where_reframe_is_told_so",
        r"reframe .* -S backend=apptainer": "test_every_check_runs_inside_where_reframe_is_told_so",
    },
    "containers/test_containers_definitions.py": {
        r"make images SPACK=\w+( MIRROR=\S+)?": "test_programs_of_spack",
        r"containers/images.py aligners --spack .*": "test_programs_of_spack",
    },
    "containers/test_containers_site.py": {
        r"make run BACKEND=spack": "test_a_view_of_spack",
    },
    "containers/test_containers_spack.py": {
        r"export SPACK_ROOT=.*": "test_a_real_spack_concretizes_all_and_finds_no_fault_in_our_recipes",
        r"spack compiler find; .*": "test_a_real_spack_concretizes_all_and_finds_no_fault_in_our_recipes",
        r"spack-env/stack.py mirror .*": "test_a_mirror_is_filled_by_download_and_a_wrong_file_never_stays",
        r"spack-env/stack.py install .*": "test_a_real_spack_concretizes_all_and_finds_no_fault_in_our_recipes",
    },
    "workflows/test_workflows.py": {
        r"snakemake --snakefile .*": "test_snakemake",
        r"samtools view -H mapped/a\.bam": "test_snakemake",
        r"paste benchmarks/a\.tsv .*": "test_snakemake",
        r"nextflow run .*": "test_nextflow",
    },
    "emulated/test_emulated_end.py": {
        r"make emulate SYSTEM=\S+ CMD=.*": "test_emulate_runs_a_command",
    },
}
#: Commands that this module runs with other files.
SIMILAR = (
    r"bash append\.sh shared/campaigns/\S+",
    r"firsttouch report shared/campaigns -o report",
    r"firsttouch plan --aligner bwa-mem --index-size 5\.1GB --xml docs/examples/.*",
)
#: Commands that are shown with the same words but depend on the page, or on what happened meanwhile.
AGAIN = (
    r"firsttouch report results -o report",
    r"firsttouch init jobs",
    r"firsttouch system (draft|check) .*",
    r"firsttouch validate --system rome .*",
)
#: How the message begins, with exit status 3, if this host cannot run a command.
CANNOT = "firsttouch: cannot be done here: "
#: The commands that may end so.
NEEDS_OF_HOST = (
    r"firsttouch run 8x(16)?-bound .*",  # 8 and 128 PUs
    r".* firsttouch run 1x2-interleave .*",  # two PUs
    r"firsttouch run (1x2|2x1)-unbound .*",  # two PUs
    r"firsttouch run \S+\+thp\S* .*",  # transparent huge pages
    r"firsttouch run .*--scratch ram.*",  # a mount namespace
)
#: A command of firsttouch that neither needs a shell nor runs a program of the user's.
PLAIN = r"firsttouch (?!.* -- )[^|&;<>$`()*]+"
#: Files of a site that a process reads once: not in this process, if a page writes them.
READ_ONCE = ("metrics.toml", "policies.toml", "memory_options.toml")
#: Folders of the checkout that examples use.
PARTS = (
    "reframe",
    "containers",
    "spack-env",
    "tests/golden",
    "tests/emulated",
    "docs/examples",
    "docs/extensions",
)
ALL = [command for page in PAGES for command in documented.commands(page)]


def covered(command: Command) -> bool:
    """Return whether another test runs a command."""
    return any(re.fullmatch(pattern, command.text) for tests in COVERED.values() for pattern in tests)


def repeated(command: Command) -> bool:
    """Return whether this module runs the same command elsewhere: where its output is shown, or else first."""
    if any(re.fullmatch(pattern, command.text) for pattern in SIMILAR):
        return True
    same = [c for c in ALL if c.text == command.text]
    runs = next((c for c in same if c.output), same[0])
    return command != runs and not any(re.fullmatch(pattern, command.text) for pattern in AGAIN)


def is_run(command: Command) -> bool:
    """Return whether this module runs a command."""
    return not command.reason and not covered(command) and not repeated(command)


def _unneeded(folder: str, names: list[str]) -> set[str]:
    generated = {ROOT / "datasets" / "store"}
    return {n for n in names if n == "__pycache__" or ".sif" in n or Path(folder, n) in generated}


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory, lambda_work: tuple[Path, tuple[Path, ...], Path]) -> Path:
    """A folder with the parts of the checkout that examples name, with the reads and indexes that they name."""
    work = tmp_path_factory.mktemp("examples")
    for part in PARTS:
        shutil.copytree(ROOT / part, work / part, ignore=_unneeded)
    (work / "results").mkdir()
    prefix, reads, reference = lambda_work
    mates = [records(file)[:PART] for file in reads]
    for mate, part in enumerate(mates, start=1):
        (work / f"r{mate}.fq").write_bytes(b"".join(part))
        subprocess.run(["gzip", "-k", work / f"r{mate}.fq"], check=True)
    (work / "pairs.fq").write_bytes(b"".join(itertools.chain(*zip(*mates, strict=True))))
    # BWA's index is files with a prefix, SNAP's a folder.
    for file in prefix.parent.glob(f"{prefix.name}*"):
        for name in ("IDX", "ref.fa"):
            shutil.copy(file, work / f"{name}{file.name.removeprefix(prefix.name)}")
    shutil.copy(reference, work / "ref.fa")
    bowtie2 = aligners.get_index(aligner("bowtie2"), reference, prefix.parents[1], say=lambda _: None)
    shutil.copytree(bowtie2.parent, work / "idx")
    for file in (work / "idx").glob(f"{bowtie2.name}*"):
        file.rename(file.with_name(f"hg{file.name.removeprefix(bowtie2.name)}"))
    snap = aligners.get_index(aligner("snap"), reference, prefix.parents[1], say=lambda _: None)
    shutil.copytree(snap, work / "IDX")
    return work


@pytest.fixture
def copy(examples: Path, tmp_path: Path) -> Path:
    """A copy of the folder of the examples for one page."""
    return shutil.copytree(examples, tmp_path / "firsttouch")


@pytest.fixture
def environment(
    copy: Path, lambda_part: dict[str, str], installed: Path, native_probe: Path, small_caches: None
) -> dict[str, str]:
    """The environment of the commands, which starts an installed copy."""
    return {
        **{name: value for name, value in os.environ.items() if name != "FIRSTTOUCH_SYSTEMS"},
        "PATH": f"{installed / 'bin'}:{native_probe.parent}:{os.environ['PATH']}",
        "FIRSTTOUCH_PROBE": str(native_probe),
        # As in a checkout, drafts of systems go to reframe/systems.
        "FIRSTTOUCH_HOME": str(copy / "reframe"),
        "FIRSTTOUCH_SITE": str(copy / "site"),
        "FIRSTTOUCH_OUT": str(copy / "reports" / "out"),
        "FIRSTTOUCH_EFFORT": "smoke",
        "RFM_COLORIZE": "n",
        **lambda_part,
    }


@pytest.fixture
def shell(copy: Path, environment: dict[str, str], installed: Path, run_here, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that runs a command line in the folder of the examples, with an installed copy.

    With *here*, a plain command of firsttouch runs in this process, which has the same modules.
    """
    monkeypatch.delenv("FIRSTTOUCH_SYSTEMS", raising=False)
    # The few reads are sorted before they can be sampled: sort(1) ends when it has been.
    waiting = copy.with_name("waiting")
    waiting.mkdir()
    write_program(waiting / "sort", f'{shutil.which("sort")} "$@"\n{held_programs.shell_wait(waiting)}\n')
    program = [installed / "bin" / "python", held_programs.__file__, waiting]
    write_program(waiting / "firsttouch", f'exec {shlex.join(map(str, program))} "$@"\n')

    def run(line: str, *, here: bool = False) -> subprocess.CompletedProcess[str]:
        if here and re.fullmatch(PLAIN, line):
            monkeypatch.chdir(copy)
            return run_here(*shlex.split(line)[1:], **environment)
        argv = ["bash", "-euo", "pipefail", "-c", line]
        path = f"{waiting}:{environment['PATH']}" if "-- sort " in line else environment["PATH"]
        return captured(argv, cwd=copy, env={**environment, "PATH": path}, stdin=subprocess.DEVNULL, timeout=120)

    return run


@pytest.mark.parametrize("page", list(dict.fromkeys(c.page for c in ALL if is_run(c))), ids=documented.name)
def test_the_commands_of_a_page(page: Path, copy: Path, shell) -> None:
    entries = documented.read(page)
    here = not any(isinstance(e, documented.Written) and Path(e.path).name in READ_ONCE for e in entries)
    for shown in entries:
        if isinstance(shown, documented.Written):
            (copy / shown.path).parent.mkdir(parents=True, exist_ok=True)
            with (copy / shown.path).open("a" if shown.behind else "w") as file:
                file.write("\n" + shown.text if shown.behind else shown.text)
        elif is_run(shown):
            done = shell(shown.text, here=here)
            if done.returncode == 3 and any(re.fullmatch(pattern, shown.text) for pattern in NEEDS_OF_HOST):
                assert done.stderr.splitlines()[-1].startswith(CANNOT)
                warnings.warn(f"NOT RUN: {shown.place}: {shown.text}: {done.stderr}", stacklevel=1)
                continue
            assert done.returncode == 0, f"{shown.place}: {shown.text}\n{done.stdout}{done.stderr}"
            printed = f"{done.stdout}{done.stderr}".replace(f"{copy}/", "")
            assert shown.unprinted(printed) == [], f"{shown.place}: the command prints\n{printed}"


def test_make_run(copy: Path, shell) -> None:
    """Run the recipe with one step; other tests run every step."""
    # Within `make test`, make would print its folder.
    make = ["make", "--no-print-directory", "-n", "run"]
    done = captured(make, cwd=ROOT, check=True)
    setup, characterize = done.stdout.replace("\\\n", " ").splitlines()
    assert setup == "setup/setup.sh run"
    done = shell(f"{characterize.removeprefix('.venv/bin/')} -- -n '^topology$'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (copy / "reports" / "out" / "latest" / "index.html").is_file()


def test_every_command_is_run_somewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for file, tests in COVERED.items():
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        there = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert set(tests.values()) <= there, file
        assert [p for p in tests if not any(re.fullmatch(p, c.text) for c in ALL)] == []
    assert [p for p in (*SIMILAR, *AGAIN, *NEEDS_OF_HOST) if not any(re.fullmatch(p, c.text) for c in ALL)] == []
    others = [c for c in ALL if covered(c)]
    nowhere = [c for c in ALL if c.reason]
    with capsys.disabled():
        print(f"\n{len(ALL)} commands: {len(others)} run by other tests, {len(nowhere)} nowhere:")
        for command in nowhere:
            print(f"  {command.place}: {command.text}: {command.reason}")
    assert len(nowhere) <= 2

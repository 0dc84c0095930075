# SPDX-License-Identifier: Apache-2.0
"""The user's own aligner command under a placement: `firsttouch run -- bwa mem ...`, as part of any pipeline."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from firsttouch.advice import BUDGET
from firsttouch.cli import options
from firsttouch.errors import BadInput, CannotHere, ProgramFailed, one_line
from firsttouch.execution import host_lock, pu_claims
from firsttouch.execution.child_process import exit_status
from firsttouch.execution.progress import live, say, write
from firsttouch.execution.ram_scratch import InMemory, scratch_in
from firsttouch.genomics import Form, collecting, division, sam, stream
from firsttouch.genomics.command_line import UserCommand, parse
from firsttouch.genomics.index_copies import OWN, IndexCopies, IndexUse
from firsttouch.genomics.messages import Messages
from firsttouch.genomics.pipe_writer import StopRequest
from firsttouch.genomics.reads import NoReads, is_for_no_aligner
from firsttouch.genomics.sinks import AlignOutput, Sink, default_threads, open_sink
from firsttouch.host import grant
from firsttouch.host.available_memory import available_bytes
from firsttouch.host.topology import Topology, load
from firsttouch.records import atomic_files
from firsttouch.scenarios import evidence, memory_options
from firsttouch.scenarios.memory_fit import Need
from firsttouch.scenarios.placement import Scenario, name_of, parse_name, plan
from firsttouch.tools import lean_numpy

#: The most bytes of compressed reads that are unpacked to estimate their number.
_LOOK_BYTES = 8 << 20
#: Seconds between two lines of progress outside of a terminal.
_PROGRESS_SECONDS = 60.0


class AlignRequest(Struct, frozen=True):
    """How a user's command is run; the options of the same names describe the fields.

    *tables* are files that the caller writes from the result: a run that reads one or cannot write one is refused.
    *json*: the caller prints the result, so the alignments need a file.
    """

    scenario: str = "auto"
    output: Path | None = None
    output_format: Form | None = None
    sort: bool = False
    reference: Path | None = None
    threads: int | None = None
    output_threads: int | None = None
    progress: Literal["text", "none"] | None = None
    budget: float = BUDGET
    tables: tuple[Path, ...] = ()
    scratch: InMemory | Path | None = None
    policies: str = "usual"
    options: str = "all"
    timeout: float | None = None
    share_host: bool = False
    json: bool = False


class Aligned(Struct, frozen=True):
    """How a command ran: the JSON *document* of `firsttouch run`, and a short name of its *sample*."""

    document: dict[str, Any]
    sample: str


def run(args: argparse.Namespace) -> int:
    """Align, print or write as requested by the options, and return the aligner's exit status."""
    tables = tuple(file for file in (args.multiqc, args.tsv) if file)
    try:
        aligned = align(args.program, options.request(AlignRequest, args, tables=tables))
    except ProgramFailed as error:
        if str(error):
            say(f"firsttouch: error: {error}")
        return exit_status(error.status)
    if args.json:
        options.print_json(aligned.document)
    if args.tsv:
        atomic_files.write(args.tsv, _table(aligned))
    if args.multiqc:
        atomic_files.write(args.multiqc, multiqc_section(aligned))
    return 0


def _table(aligned: Aligned) -> str:
    """Return a run as a table with a header and one row (TSV)."""
    run = aligned.document
    values = (aligned.sample, run["scenario"]["name"], run["placement"], f"{run['seconds']:.3f}")
    return "\t".join(("sample", "scenario", "placement", "seconds")) + "\n" + "\t".join(values) + "\n"


def multiqc_section(aligned: Aligned) -> str:
    """Return a run as columns of MultiQC's general statistics (its custom content)."""
    import html  # noqa: PLC0415 - most runs write no section
    import json  # noqa: PLC0415

    run = aligned.document
    columns = {
        "seconds": {"title": "Time", "description": "Wall time of the alignment", "suffix": " s"},
        "scenario": {"title": "Scenario", "description": "Placement scenario of firsttouch"},
        "placement": {"title": "Placement", "description": "What the kernel showed of the placement"},
    }
    # MultiQC inserts names into its page as HTML.
    row = {
        "seconds": run["seconds"],
        "scenario": html.escape(run["scenario"]["name"]),
        "placement": run["placement"],
    }
    section = {
        "id": "firsttouch_runs",
        "plot_type": "generalstats",
        "pconfig": [{key: head} for key, head in columns.items()],
        "data": {html.escape(one_line(aligned.sample)): row},
    }
    return json.dumps(section, indent=1, allow_nan=False) + "\n"


def align(words: Sequence[str | Path], request: AlignRequest) -> Aligned:
    """Run the command of an aligner as requested, and report the result on standard error.

    Without an output file, the alignments go to the standard output of this process. Raises BadInput, Missing, or
    ProgramFailed (without a text if the reader of standard output has ended).
    """
    command = parse([*map(str, words)])
    if request.threads:
        command = command.with_threads(request.threads)
    output = _output(request, command)
    host = load()
    if lacking := grant.lacking_pus(command.threads, host):
        say(f"warning: {lacking}")
    scenario = _fed_scenario(request, command, _scenario(request, command, host), host)
    named = replace(request, scenario=scenario.name)
    try:
        with (
            host_lock.hold_unless_shared(say, share_host=request.share_host, shared=True),
            pu_claims.claim_pus(scenario, host, lambda free: _scenario(named, command, free), say) as claimed,
        ):
            placed, warning = claimed
            if warning:
                say(f"warning: {warning}")
            return _align(request, command, placed, output, "; ".join(filter(None, (lacking, warning))))
    except ProgramFailed as error:
        if error.status == -signal.SIGPIPE and not output.is_file:
            raise ProgramFailed("", error.status) from None
        raise


def _output(request: AlignRequest, command: UserCommand) -> AlignOutput:
    """Return the output; raises BadInput if it cannot be written."""
    if request.output and command.output:
        raise BadInput(f"-o and the command's own output {command.output}: name one of them")
    path = request.output or command.output
    threads = request.output_threads or default_threads(command.threads)
    output = AlignOutput(
        path,
        # The aligner itself would write SAM, regardless of the file's name.
        request.output_format or ("sam" if command.output else None),
        request.sort,
        reference=request.reference,
        threads=threads,
    )
    if command.sam_option and (output.place or output.written_form != "sam" or output.sort):
        raise BadInput(
            "-o, -O and --sort need SAM, which the command does not write without "
            f"{command.sam_option}: add {command.sam_option}, or redirect the standard output"
        )
    # Its standard output, such as /dev/stdout, is where the alignments go.
    files = [file for file in command.written_files() if not atomic_files.is_stream(file)]
    output.check(inputs=[*command.files(), *files])
    command.refuse_overwriting([request.reference] if request.reference else [])
    if command.summary_file:
        atomic_files.check_place(command.summary_file)
    if request.tables:
        written = [*request.tables, *([output.named] if output.is_file else [])]
        atomic_files.refuse_overwriting(written, [*command.files(), *command.written_files()])
        for table in request.tables:
            atomic_files.check_place(table)
    if not output.is_file and request.json:
        raise BadInput("--json needs -o FILE: standard output has the alignments")
    return output


def _scenario(request: AlignRequest, command: UserCommand, host: Topology) -> Scenario:
    """Return the scenario that the user names, or the one that auto chooses."""
    command.aligner.version()
    size = command.aligner.index_bytes(command.index) if command.index else 0
    pus = host.usable_pu_count
    if request.output_threads and request.output_threads > pus:
        raise BadInput(f"--output-threads {request.output_threads}: this process may use {pus} PUs")
    threads = min(command.threads, pus)

    def in_one_instance(name: str) -> Scenario:
        # A scenario that the user names may run even with too little memory.
        need = Need(index_use=command.aligner.index_use)
        return plan(host, need, threads=threads, policies=request.policies).scenario(_with_threads(name, threads))

    wanted = request.scenario
    instances = 0 if wanted == "auto" else _instances(wanted, command.threads)
    if instances == 1:
        return in_one_instance(wanted)
    planned = plan(host, command.aligner.need(size), threads=threads, policies=request.policies)
    if wanted == "auto":
        if not planned.scenarios:
            say(f"{command.aligner.name} as it is: {planned.infeasible[0][1]}")
            return in_one_instance("1x-default")
        from firsttouch.advice.auto import Auto  # noqa: PLC0415 - a stated scenario needs no advice

        choosing = Auto(
            command,
            host,
            planned,
            request.budget,
            scratch=request.scratch if isinstance(request.scratch, Path) else None,
            options=request.options,
            say=say,
        )
        with host_lock.hold_unless_shared(say, share_host=request.share_host, shared=True):
            choice = choosing.choose()
        say(f"{command.aligner.name} under {choice.scenario.name}: {choice.reason}")
        return choice.scenario
    if instances and command.whole:
        raise BadInput(f"scenario {wanted}: this command runs as one instance only: {command.whole}")
    return planned.scenario(_with_threads(wanted, threads))


def _fed_scenario(request: AlignRequest, command: UserCommand, scenario: Scenario, host: Topology) -> Scenario:
    """Return *scenario* with fewer instances if some would get no reads; all of its threads run."""
    fed = _fed_instances(command, scenario) if scenario.instances > 1 else 1
    if fed >= scenario.instances:
        return scenario
    count = max(number for number in range(1, fed + 1) if scenario.instances % number == 0)
    total = scenario.instances * scenario.threads
    name = name_of(count, total // count, scenario.policy) + memory_options.suffix(scenario.options)
    fewer = scenario.with_instances(count)
    for usual in (name, f"1x{total}-default") if count == 1 else (name,):
        with contextlib.suppress(BadInput, CannotHere):
            fewer = _scenario(replace(request, scenario=usual), command, host)
            break
    say(f"{count} of {scenario.instances} instances run, as {fewer.name}: the reads are too few for more")
    return fewer


def _instances(wanted: str, threads: int) -> int:
    """Return the instances of a scenario; raises BadInput if it has more threads than the command requests."""
    parts = parse_name(wanted)
    if not parts:
        return 0
    instances, each = parts.instances, parts.threads
    if instances * (each or 1) > threads:
        asked = f"{instances} x {each}" if each else f"{instances} or more"
        raise BadInput(
            f"scenario {wanted} has {asked} threads, and the command requests {threads}: raise its threads"
        )
    return instances


def _with_threads(wanted: str, total: int) -> str:
    """Return the name of a scenario that divides *total* threads, unless the name states the threads."""
    parts = parse_name(wanted)
    if not parts or parts.threads:
        return wanted
    return str(replace(parts, threads=max(1, total // parts.instances)))


def _align(
    request: AlignRequest, command: UserCommand, scenario: Scenario, output: AlignOutput, lacking: str
) -> Aligned:
    decompressed = any(is_for_no_aligner(file) for lane in command.lanes for file in lane)
    wanted = request.progress is not None or decompressed
    divided = scenario.instances > 1 or (wanted and not command.whole)
    disk = output.named.parent if output.is_file else Path(tempfile.gettempdir())
    numa_nodes = {node for placement in scenario.placements for node in placement.numa_nodes}
    with contextlib.ExitStack() as stack:
        stop = StopRequest()
        stack.callback(stop.close)
        memory = stack.enter_context(scratch_in(request.scratch, numa_nodes))
        folder = request.scratch if isinstance(request.scratch, Path) else disk
        place = memory.folder if memory else folder
        scratch = stack.enter_context(atomic_files.workspace(place))
        copies = stack.enter_context(IndexCopies(command.aligner, command.index, name=command.index_name, say=say))
        uses = copies.uses(scenario)
        divided = divided or (uses[0].hides(file for lane in command.lanes for file in lane) and not command.whole)
        if uses[0].prefix and command.whole and ("output" in command.roles or command.sam_option):
            raise BadInput(
                f"scenario {scenario.name}: the command writes its output itself ({command.whole}), which would "
                "name a copy of the index: let it write SAM to standard output"
            )
        need = _needed_bytes(command, scenario)
        available = available_bytes()
        if lacking_memory := grant.lacking_memory(need, available):
            say(f"warning: {lacking_memory}")
        left = _memory_left(need, available)
        sink = stack.enter_context(
            open_sink(output, scratch=scratch, pus=sorted(scenario.pus), memory_bytes=left, stop=stop)
        )
        task = _Task(request, command, scenario, output, sink, scratch, stop, copies, uses)
        try:
            result = task.streamed() if divided else task.unsplit()
        except NoReads:
            if any(Path(file).resolve().is_fifo() for lane in command.lanes for file in lane):
                raise  # the program would wait for another writer
            say(f"no reads: {command.aligner.name} runs as it is")
            scenario = task.scenario = scenario.with_instances(1)
            result = task.unsplit()
        files = sink.finish()
    _report(request, command, scenario, result)
    document = _run_document(task, result, files) | {
        "scratch": memory and memory.to_dict(),
        "lacking": [text for text in (lacking, lacking_memory) if text],
    }
    return Aligned(document, _sample(command, output))


def _sample(command: UserCommand, output: AlignOutput) -> str:
    """Return the output's name without its suffix; for standard output, the name of the first file of reads."""
    if output.is_file:
        return output.named.stem
    reads = Path(command.lanes[0][0]) if command.lanes else Path()
    return Path(reads.name.removesuffix(".gz")).stem if reads.is_file() else command.aligner.name


def _needed_bytes(command: UserCommand, scenario: Scenario) -> int:
    """Return the memory that the instances will take (bytes); 0 if unknown."""
    if command.index is None:
        return 0
    need = command.aligner.need(command.aligner.index_bytes(command.index))
    return scenario.instances * need.bytes_for(scenario.threads, memory_options.index_copies(scenario.options))


def _memory_left(need: int, available: int | None) -> int | None:
    """Return the memory left for sorting (bytes) if the instances take *need* bytes; None: unknown."""
    return None if available is None else max(0, available - need)


def _fed_instances(command: UserCommand, scenario: Scenario) -> int:
    """Return the most instances of *scenario* that can get reads."""
    part = division.least_bytes(command.batch)
    files = [file for lane in command.lanes for file in lane]
    return max(1, -(-_text_bytes(files, scenario.instances * part) // part))


def _text_bytes(files: Sequence[str], most: int) -> int:
    """Return the bytes of text in *files*; *most* if there are more, or if counting would take long.

    An input that can be read only once may have any size.
    """
    total = 0
    for file in files:
        if not Path(file).is_file():
            return most
        with Path(file).open("rb") as stream:
            begin = stream.read(2)
        if begin == b"\x1f\x8b":
            import gzip  # noqa: PLC0415 - most inputs are plain or pipes

            try:
                with gzip.open(file) as unpacked:
                    size = len(unpacked.read(min(most, _LOOK_BYTES)))
            except (OSError, EOFError, zlib.error):
                return most  # damaged: the run reports the error
            total += most if size == _LOOK_BYTES else size
        else:
            total += Path(file).stat().st_size if begin[:1] in {b"@", b">", b""} else most
    return min(total, most)


class _Task(Struct):
    """The inputs of one run."""

    request: AlignRequest
    command: UserCommand
    scenario: Scenario
    output: AlignOutput
    sink: Sink
    scratch: Path
    stop: StopRequest
    copies: IndexCopies
    uses: Sequence[IndexUse]

    def describe(self, header: bytes) -> bytes:
        """Return the output's header: the aligner's, with the user's command and the scenario in its @PG line."""
        note = stream.note(self.scenario, self.output)
        return sam.describe_program(self.copies.restore_header(header), self.command.as_typed(), note)

    def unsplit(self) -> stream.StreamResult:
        """Run the user's command unchanged, in one instance."""
        direct = self.output.place is None and self.output.written_form == "sam" and not self.output.sort
        direct = direct and self.uses[0] == OWN
        return stream.unsplit(
            self.command,
            self.scenario,
            None if direct else self.sink,
            self.describe,
            self.stop,
            use=self.uses[0],
            timeout=self.request.timeout,
        )

    def streamed(self) -> stream.StreamResult:
        """Align the reads with all instances."""
        command = self.command
        with lean_numpy():
            from firsttouch.genomics.read_stream import ReadStream  # noqa: PLC0415 - it loads NumPy

        with ReadStream(
            command.lanes,
            interleaved=command.interleaved,
            rule=command.batch,
            least_part_bytes=division.PART_BYTES,
            smallest_part_bytes=min(division.SMALLEST_PART_BYTES, division.PART_BYTES),
            instances=self.scenario.instances,
            merged=command.pipes == 1,
            any_names=command.aligner.align.any_names,
        ) as reads:
            messages = Messages(command.aligner.summary, self.scenario.instances, _write_message)
            messages.typed = " ".join(command.words)
            work = stream.Run(
                command,
                self.scenario,
                reads,
                collecting.SinkTarget(self.sink),
                self.scratch,
                self.describe,
                self.stop,
                self.uses,
                timeout=self.request.timeout,
                on_progress=_progress(self.request),
                messages=messages,
            )
            try:
                result = work.run()
            finally:
                live("")
        self._conclude(messages)
        return result

    def _conclude(self, messages: Messages) -> None:
        """Print the aligner's summary of the whole run, and write the summary file that the user requested."""
        text, name = messages.summary, self.command.aligner.name
        if messages.is_unclear:
            say(
                f"the summary of {name} is left out, with all messages that differ between its instances: not all "
                "of them printed one that is known; a scenario of one instance shows it"
            )
        elif messages.is_joined and text:
            _write_message(text)
        if file := self.command.summary_file:
            if text:
                atomic_files.write(file, text)
            elif not atomic_files.is_stream(file):
                file.unlink(missing_ok=True)  # it belongs to an earlier run


def _progress(request: AlignRequest) -> Callable[[stream.Progress], None]:
    """Return the function that reports progress in the requested form."""
    last = 0.0

    def report(now: stream.Progress) -> None:
        nonlocal last
        text = now.text()
        live(text)
        if now.seconds - last >= _PROGRESS_SECONDS:
            last = now.seconds
            if not sys.stderr.isatty():
                say(text)

    return report if request.progress != "none" else lambda _: None


def _write_message(text: str) -> None:
    """Print the messages of an aligner."""
    live("")
    write(text)


def _report(
    request: AlignRequest,
    command: UserCommand,
    scenario: Scenario,
    result: stream.StreamResult,
) -> None:
    """Report the result of the run on standard error."""
    state = evidence.describe(result, unverified=evidence.COMPLETE)
    reads = f"{result.reads:,} reads ({result.mapped / result.reads:.1%} mapped) in " if result.reads else ""
    if request.progress != "none":
        say(f"{command.aligner.name} under {scenario.name}: {reads}{result.seconds:.3f} s, {state}")
    if result.reads and (reason := sam.hardly_mapped(result.mapped, result.reads)):
        say(reason)
    unfed = scenario.instances - len(result.fed)
    if result.fed and unfed:
        why = "they fill too few batches of the aligner" if command.batch.is_conditional else "there are too few"
        say(f"{unfed} of {scenario.instances} instances got no reads: {why}")


def _run_document(task: _Task, result: stream.StreamResult, files: Sequence[Path]) -> dict[str, Any]:
    """Return the JSON form of a run."""
    return {
        "command": list(task.command.words),
        "scenario": task.scenario.to_dict(),
        "reads": result.reads or None,
        "mapped": result.mapped if result.reads else None,
        "seconds": result.seconds,
        "cpu_seconds": result.cpu_seconds,
        "output_cpu_seconds": task.sink.cpu_seconds,
        "peak_bytes": result.peak_bytes,
        "placement": evidence.state(result),
        "reason": result.misplaced,
        "files": [str(file) for file in files],
    }

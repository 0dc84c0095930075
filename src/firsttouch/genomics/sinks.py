# SPDX-License-Identifier: Apache-2.0
"""Destinations of a stream of SAM text: standard output, a file, or samtools for BAM, CRAM and sorted files.

:class:`AlignOutput` states the request and refuses impossible ones; :func:`open_sink` opens it for writing.
Files appear complete, by renaming, when the sink is finished.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from msgspec import Struct

from firsttouch.errors import BadInput, Missing, RunFailed
from firsttouch.execution.child_process import child, describe_ending, last_lines, wait
from firsttouch.genomics import Form, sam
from firsttouch.genomics.pipe_writer import Stopped, StopRequest, enlarge_pipe
from firsttouch.host.available_memory import available_bytes
from firsttouch.records import atomic_files
from firsttouch.tools import defer_signals, require, run_tool

#: The first samtools with --no-PG, --write-index, and names of indexes after ##idx##.
_LEAST_SAMTOOLS = (1, 10)
#: samtools gets one thread for this number of the scenario's threads, at least one.
_THREADS_PER_OUTPUT_THREAD = 8
#: `samtools sort` takes at most this part of the free memory, and at most this number of bytes per thread.
_SORT_SHARE, _MOST_SORT_BYTES, _LEAST_SORT_BYTES = 0.25, 2 << 30, 16 << 20
#: A BAI index covers positions below this one; longer references need a CSI index.
_BAI_LIMIT = 1 << 29
#: The suffixes of the indexes of FASTA, BGZF, BAM, CRAM and VCF files, and of a dictionary of sequences.
_INDEXES = (".fai", ".gzi", ".dict", ".bai", ".csi", ".crai", ".tbi")
#: The number of last lines of a log in messages: samtools reports a full disk before a failed close.
_LOG_LINES = 4
#: Poll interval in seconds for the reader of a pipe.
_PAUSE = 0.05
#: Seconds to wait for programs to end after one of them has failed.
_PATIENCE = 2.0


def default_threads(threads: int) -> int:
    """Return the threads of each output program for a scenario with this total number of *threads*: an eighth."""
    return max(1, threads // _THREADS_PER_OUTPUT_THREAD)


class AlignOutput(Struct, frozen=True):
    """The requested output: *path* None (or -) is standard output; *form* None is the form of the path's suffix.

    *sort* orders by coordinate and writes the index next to a BAM or CRAM file. CRAM needs the
    FASTA file *reference*. samtools uses *threads* threads.
    """

    path: Path | None = None
    form: Form | None = None
    sort: bool = False
    reference: Path | None = None
    threads: int = 1

    @property
    def place(self) -> Path | None:
        """The path; None for standard output."""
        return None if self.path == Path("-") else self.path

    @property
    def written_form(self) -> Form:
        """The form; raises BadInput if neither option nor suffix states it."""
        if self.form is not None:
            return self.form
        if self.place is None:
            return "sam"
        suffix = self.place.suffix.lower()
        for form in get_args(Form):
            if suffix == f".{form}":
                return form  # type: ignore[no-any-return]
        if atomic_files.is_stream(self.place):
            return "sam"
        reason = "its name does not end with .sam, .bam or .cram: rename it, or say -O sam, -O bam or -O cram"
        raise BadInput(reason, file=self.place)

    @property
    def is_file(self) -> bool:
        """Whether the output is a file that is replaced, and neither a pipe nor a device."""
        return self.place is not None and not atomic_files.is_stream(self.place)

    @property
    def is_indexed(self) -> bool:
        """Whether an index is written next to the output."""
        return self.sort and self.is_file and self.written_form != "sam"

    @property
    def named(self) -> Path:
        """The path as the user named it; /dev/stdout for standard output."""
        return self.place or Path("/dev/stdout")

    def check(self, *, inputs: Sequence[Path] = (), records: Path | None = None) -> None:
        """Raise BadInput or Missing if the output cannot be written, before any long work.

        It must differ from the *inputs*, the reference, the indexes of both, and the file of *records*, even if it
        is an open file. A reference without an index gets one.
        """
        if self.threads < 1:
            raise BadInput(f"{self.threads} threads for the output are too few: give one or more")
        if self.place is not None:
            atomic_files.check_place(self.place)
        files = [self.named, *(index_names(self.named) if self.is_file and self.sort else ())]
        reads = with_indexes([*inputs, *([self.reference] if self.reference else [])])
        atomic_files.refuse_overwriting([*files, *([records] if records else [])], reads)
        form = self.written_form
        if self.place is None and form != "sam" and os.isatty(1):
            raise BadInput(f"{form.upper()} is not text for a terminal: name a file with -o, or use a pipe")
        if form != "sam" or self.sort:
            _check_samtools()
        if form == "cram":
            if self.reference is None:
                raise BadInput("CRAM needs the reference that the index was built of: give --reference FASTA")
            _check_reference_file(self.reference)

    def check_reference(self, header: bytes) -> None:
        """Raise BadInput if the reference lacks a sequence of *header*'s @SQ lines, or if its length differs."""
        if self.written_form != "cram" or self.reference is None:
            return
        index = Path(f"{self.reference}.fai")
        try:
            lines = index.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
            lengths = {name: int(length) for name, length, *_ in (line.split("\t") for line in lines)}
        except (OSError, ValueError) as error:
            raise BadInput("not an index of a FASTA file: remove it, and it is made again", file=index) from error
        for name, length in references(header):
            if lengths.get(name) != length:
                has = f"has {lengths[name]} in this file" if name in lengths else "is not in this file"
                raise BadInput(
                    f"sequence {name} has {length} bases in the index, and {has}: "
                    "give the FASTA file that the index was built of",
                    file=self.reference,
                )

    def description(self) -> str:
        """Return the steps of samtools on the alignments, for the header; an empty string without steps."""
        if not self.sort:
            return ""
        return f"sorted by coordinate by samtools {'.'.join(map(str, samtools_version()))}"

    def command(self, target: Path | None, index: Path | None, scratch: Path, sort_bytes: int) -> list[str]:
        """Return the argv of samtools that writes *target* (None: standard output) and *index*; [] for plain SAM.

        *scratch* is a folder for temporary files, *sort_bytes* the memory of each thread of `samtools sort`.
        """
        form = self.written_form
        # --no-PG: these lines in the header would name pipes and the scratch folder.
        common = ["--no-PG", "-@", str(self.threads - 1)]
        final = ["-O", form]
        if form == "cram":
            final += ["--reference", str(self.reference)]
        out = "-" if target is None else str(target)
        if index is not None:
            final.append("--write-index")
            out += f"##idx##{index}"
        if not self.sort:
            # `samtools view` of SAM would leave the header out.
            return [] if form == "sam" else ["samtools", "view", *common, *final, "-o", out, "-"]
        room = ["-m", f"{sort_bytes >> 10}K", "-T", str(scratch / "sort")]
        return ["samtools", "sort", *common, *room, *final, "-o", out, "-"]


def references(header: bytes) -> Iterator[tuple[str, int]]:
    """Yield name and length of each @SQ line of *header*."""
    for line in header.splitlines():
        if line.startswith(b"@SQ\t"):
            fields = dict(field.partition(b":")[::2] for field in line.split(b"\t")[1:])
            yield fields.get(b"SN", b"").decode(errors="surrogateescape"), int(fields.get(b"LN", b"0"))


def rename(file: Path, name: Path) -> None:
    """Move *file* to *name*; if that is a link, to its target, which may be on another file system."""
    try:
        atomic_files.rename(file, Path(os.path.realpath(name)))
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        with atomic_files.output(name, force=True) as partial:
            shutil.copyfile(file, partial)


def index_names(file: Path) -> list[Path]:
    """Return the names under which samtools looks for an index of *file*, in its order."""
    names = [Path(f"{file}{suffix}") for suffix in (".csi", ".bai", ".crai")]
    return [*names, file.with_suffix(".bai")] if file.suffix == ".bam" else names


def with_indexes(files: Iterable[Path]) -> list[Path]:
    """Return *files* with the names of the indexes and dictionaries that programs keep next to them."""
    names = list(files)
    names += [Path(f"{file}{suffix}") for file in names for suffix in _INDEXES]
    # ref.fa.gz has ref.dict, and out.bam may have out.bai.
    bare = [file.with_suffix("") if file.suffix == ".gz" else file for file in names if file.name]
    return [*names, *(file.with_suffix(suffix) for file in bare for suffix in (".dict", ".bai", ".crai"))]


# ----------------------------------------------------------------------
# Checks of samtools and of the reference


def samtools_version() -> tuple[int, ...]:
    """Return the version of samtools as numbers; raises Missing without samtools, RunFailed if it says none."""
    require("samtools")
    output = run_tool(["samtools", "--version"]).stdout
    if (match := re.match(r"samtools (\d+(?:\.\d+)+)", output)) is None:
        raise RunFailed(f"`samtools --version` names no version: {output[:60]!r}")
    return tuple(map(int, match[1].split(".")))


def _check_samtools() -> None:
    require("samtools", "numactl")
    if (version := samtools_version()) < _LEAST_SAMTOOLS:
        has, least = (".".join(map(str, numbers)) for numbers in (version, _LEAST_SAMTOOLS))
        raise Missing(f"samtools {has} is too old: install {least} or later")


def _check_reference_file(reference: Path) -> None:
    """Raise BadInput if *reference* cannot be read; build its index if it has none."""
    try:
        with reference.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise BadInput(f"the reference cannot be read: {error.strerror}", file=reference) from error
    if Path(f"{reference}.fai").exists():
        return
    folder = reference.parent
    if not os.access(folder, os.W_OK):
        reason = "it has no index, and its folder is not writable: copy it and run `samtools faidx`"
        raise BadInput(reason, file=reference)
    with atomic_files.workspace(folder) as scratch:
        link = scratch / reference.name
        link.symlink_to(reference.resolve())
        ended = run_tool(["samtools", "faidx", str(link)], timeout=None)
        if ended.returncode:
            reason = " | ".join(ended.stderr.splitlines()[:2])
            raise BadInput(f"`samtools faidx` fails: {reason}", file=reference)
        # The .gzi of a bgzip file comes first, because an .fai is useless without it.
        for suffix in (".gzi", ".fai"):
            if (index := Path(f"{link}{suffix}")).exists():
                index.replace(f"{reference}{suffix}")


def _sort_bytes(memory_bytes: int | None, threads: int) -> int:
    """Return the memory of each thread of `samtools sort` if *memory_bytes* are free in total."""
    amounts = [amount for amount in (memory_bytes, available_bytes()) if amount is not None]
    left = min(amounts, default=_MOST_SORT_BYTES)
    return max(_LEAST_SORT_BYTES, min(_MOST_SORT_BYTES, int(left * _SORT_SHARE) // threads))


# ----------------------------------------------------------------------
# The open output


class Sink:
    """An open output: :meth:`begin` takes the header, then :meth:`write` and :meth:`send` take alignments.

    After :meth:`begin`, SAM text may also be written to *fd*: a file, a pipe, or standard output, which may be
    non-blocking or open for appending (then sendfile(2) and splice(2) fail with EINVAL). *cpu_seconds* is the time
    of the programs after :meth:`finish`. Writing raises BrokenPipeError if the output's reader has ended.
    """

    def __init__(
        self,
        output: AlignOutput,
        stack: contextlib.ExitStack,
        scratch: Path,
        *,
        pus: Sequence[int],
        memory_bytes: int | None,
        stop: StopRequest | None,
    ) -> None:
        """Create the sink for :func:`open_sink`, which cleans up by *stack*; *scratch* is for temporary files."""
        self.fd = -1
        self.cpu_seconds = 0.0
        self._output, self._stack, self._scratch = output, stack, scratch
        self._program: _Program | None = None
        self._pus, self._memory_bytes, self._stop = pus, memory_bytes, stop
        #: The PUs for numactl, which can bind only to PUs of its process; a writing thread may have others.
        self._allowed_pus = os.sched_getaffinity(0)
        self._data: Path | None = None
        self._index: Path | None = None
        self._index_name = Path()
        if output.is_file:
            folder = Path(os.path.realpath(output.named)).parent
            self._data = stack.enter_context(atomic_files.workspace(folder)) / "output"

    def begin(self, header: bytes) -> None:
        """Start samtools if needed, and write *header*; raises BadInput if the reference has other sequences."""
        output = self._output
        output.check_reference(header)
        if self._data is not None and output.is_indexed:
            longest = max((length for _, length in references(header)), default=0)
            suffix = ".crai" if output.written_form == "cram" else ".bai" if longest < _BAI_LIMIT else ".csi"
            self._index, self._index_name = Path(f"{self._data}{suffix}"), Path(f"{output.named}{suffix}")
        sort_bytes = _sort_bytes(self._memory_bytes, output.threads)
        argv = output.command(self._data, self._index, self._scratch, sort_bytes)
        self.fd = self._open_end()
        if argv:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - it loads logging

            # The kernel kills a program when the thread that started it ends.
            anywhere = functools.partial(os.sched_setaffinity, 0, self._allowed_pus)
            starter = ThreadPoolExecutor(1, thread_name_prefix="sink", initializer=anywhere)
            self._stack.callback(starter.shutdown)
            starter.submit(self._start, argv).result()
        self.write(header)

    def write(self, data: bytes | memoryview) -> None:
        """Write all of *data*, which is SAM text."""
        with self._naming_the_output():
            sam.write_all(self.fd, data)

    def send(self, ranges: Iterable[sam.ByteRange]) -> None:
        """Write the bytes of *ranges* of files, which are SAM text."""
        with self._naming_the_output():
            sam.concatenate(ranges, self.fd)

    def finish(self) -> list[Path]:
        """Wait for samtools and put the files in place; return them, the data file first.

        Raises RunFailed with the last lines of samtools if it failed.
        """
        self._close()
        if self._program:
            self.cpu_seconds += self._program.wait()
            if reason := self._reason():
                raise RunFailed(reason)
            if self._program.process.returncode:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if self._data is None:
            return []
        if self._index is not None:
            atomic_files.sync(self._index)
            os.utime(self._index)  # the end of the data file is written after the index
        with self._naming_the_output():
            atomic_files.sync(self._data)
        # Signals are deferred until after the last rename.
        with defer_signals():
            return self._publish(self._data, self._output.named)

    def failure(self) -> str:
        """Return why samtools has stopped reading, or an empty string."""
        if not self._program or self.fd < 0 or not _reader_is_gone(self.fd):
            return ""
        self._close()
        wait(self._program.process, _PATIENCE)
        return self._reason()

    def _reason(self) -> str:
        """Return how samtools failed and its output's name; "" if it did not fail or its reader ended."""
        program = self._program
        if program is None or program.process.returncode in {None, 0, -signal.SIGPIPE}:
            return ""
        ended = describe_ending(program.name, program.process.returncode)
        reason = f"{ended}: {last_lines(program.log, _LOG_LINES) or 'it printed nothing'}"
        full = atomic_files.full_disk([self._data or self._output.named, self._scratch / "sort"])
        return f"{reason} (writing {self._name})" + (f": {full}" if full else "")

    @property
    def _name(self) -> str:
        return "standard output" if self._output.place is None else str(self._output.place)

    def _publish(self, data: Path, name: Path) -> list[Path]:
        """Rename the files to *name* and its index. A data file never stands next to an index of other data."""
        replaced = name.exists()
        for old in index_names(name):
            old.unlink(missing_ok=True)
        if self._index is not None and not replaced:
            rename(self._index, self._index_name)
        rename(data, name)
        if self._index is not None and replaced:
            rename(self._index, self._index_name)
        atomic_files.sync(Path(os.path.realpath(name)).parent)
        return [name] if self._index is None else [name, self._index_name]

    def _open_end(self) -> int:
        """Open the destination of the SAM text, or of the last program's output."""
        if self._data is not None:
            fd = os.open(self._data, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        elif self._output.place is None:
            sys.stdout.flush()
            fd = os.dup(1)
        else:
            fd = self._open_stream(self._output.place)
        self._stack.callback(self._close)
        return fd

    def _open_stream(self, place: Path) -> int:
        """Open a device, or a pipe once it has a reader; raises Stopped on request."""
        if self._stop is None or not place.is_fifo():
            return atomic_files.open_stream(place)
        while True:
            try:
                return atomic_files.open_stream(place, wait=False)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            if self._stop.wait(_PAUSE):
                raise Stopped

    def _close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def _start(self, argv: Sequence[str]) -> None:
        """Start samtools, which writes to the file of *fd*; *fd* becomes the pipe that it reads."""
        bound = ["numactl", f"--physcpubind={','.join(map(str, self._pus))}", "--"] if self._pus else []
        source, writing = os.pipe()
        target, self.fd = self.fd, writing
        try:
            enlarge_pipe(source)
            # The log is in memory, because a full disk could not be logged on that disk.
            log = os.memfd_create(argv[1])
            self._stack.callback(os.close, log)
            process = self._stack.enter_context(child([*bound, *argv], stdin=source, stdout=target, stderr=log))
            self._program = _Program(" ".join(argv[:2]), process, Path(f"/proc/self/fd/{log}"))
        finally:
            os.close(source)
            os.close(target)

    @contextlib.contextmanager
    def _naming_the_output(self) -> Iterator[None]:
        """Name the output in errors such as a full disk."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._name) from error


@contextlib.contextmanager
def open_sink(
    output: AlignOutput,
    *,
    scratch: Path,
    pus: Sequence[int] = (),
    memory_bytes: int | None = None,
    stop: StopRequest | None = None,
) -> Iterator[Sink]:
    """Open *output*, which was checked; temporary files of the programs are in the folder *scratch*.

    The programs run on *pus* (empty: on any). *stop* ends the wait for the reader of a pipe. Sorting takes at most
    a quarter of *memory_bytes* and of the free memory of host and cgroups at its start. If the block ends without
    :meth:`Sink.finish`, the programs are stopped and leave no files. A BrokenPipeError in the block becomes
    RunFailed with the end of a program's log if a program has failed.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch, prefix="output-")))
        sink = Sink(output, stack, folder, pus=pus, memory_bytes=memory_bytes, stop=stop)
        try:
            yield sink
        except BrokenPipeError as error:
            if reason := sink.failure():
                raise RunFailed(reason) from error
            raise


class _Program(Struct, frozen=True):
    """A running program."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def wait(self) -> float:
        """Wait for the end, and return the CPU seconds."""
        # Popen.wait does not return the CPU time.
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime


def _reader_is_gone(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))

# SPDX-License-Identifier: Apache-2.0
"""Getting datasets: what is in the store is whole, whatever happened on the way there."""

import gzip
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from factories.http_server import Server, serving
from factories.processes import wait_until
from firsttouch.datasets import fetch as module
from firsttouch.datasets.fetch import get, state
from firsttouch.datasets.manifest import available, load
from firsttouch.errors import BadInput, Missing, RunFailed

FASTA = b">chr1\n" + b"ACGTACGTAC\n" * 40
READS = b"".join(b"@r%d\nACGTACGTAC\n+\nIIIIIIIIII\n" % i for i in range(2000))
#: Bytes that do not pack, so that a cut in the middle is in the middle of the reads too.
NOISE = b"".join(b"@%s\nACGTACGTAC\n+\nIIIIIIIIII\n" % os.urandom(60).hex().encode() for _ in range(3000))


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The manifest of the dataset `pack`, and an empty store, which is returned."""
    (tmp_path / "manifest").mkdir()
    monkeypatch.setenv("FIRSTTOUCH_DATASETS", str(tmp_path / "manifest"))
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path / "store"))
    monkeypatch.setattr(module, "RETRY_WAIT", 0.0)
    package(tmp_path / "package")
    return tmp_path / "store"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(gzip.compress(NOISE)) as running:
        yield running


def describe(name: str, kind: str, head: str, *files: str, expect: str = "") -> None:
    folder = Path(os.environ["FIRSTTOUCH_DATASETS"])
    text = f'title = "t"\nkind = "{kind}"\nsource = "s"\n{head}\n'
    text += "".join(f"[[file]]\n{file}\n" for file in files) + f"[expect]\n{expect}\n"
    (folder / f"{name}.toml").write_text(text)


def package(folder: Path, **changes: str) -> None:
    """Describe the dataset `pack` of two packed files in *folder*, a package's."""
    folder.mkdir(exist_ok=True)
    (folder / "a.fa.gz").write_bytes(gzip.compress(FASTA))
    (folder / "a.fq.gz").write_bytes(gzip.compress(READS))
    describe(
        "pack",
        "package",
        'package = "no-such-package-examples"',
        f'role = "reference"\nname = "a.fa"\npath = "{folder}/a.fa.gz"\nchecksum = "{sha(FASTA)}"',
        f'role = "reads"\nname = "a.fq"\npath = "{folder}/a.fq.gz"\nchecksum = "{changes.get("sum", sha(READS))}"',
        expect=changes.get("expect", "reads = 2000\nread_length = 10\ncontigs = 1\nmapped_fraction_min = 0.5"),
    )


def remote(server: Server, checksum: str = "", extra: str = "", expect: str = "") -> None:
    """Describe the dataset `web` of one file on *server* (its reference is that of `pack`)."""
    pin = f'checksum = "{checksum}"' if checksum else 'why_unpinned = "the authors publish none"'
    file = f'role = "reads"\nname = "w.fq"\nurl = "{server.url}"\n{pin}\n{extra}'
    describe("web", "url", 'reference = "pack"', file, expect=expect)


def leftovers(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir() if path.name not in ("state.json", ".lock"))


# ---------------------------------------------------------------------------- packages


def test_a_package_is_unpacked_and_checked(data: Path) -> None:
    assert state(load("pack")) == "absent"
    local = get("pack")
    assert local.reference.read_bytes() == FASTA
    assert [path.read_bytes() for path in local.reads] == [READS]
    assert local.expect.mapped_fraction_min == 0.5
    assert f"sha256:{local.sha256}" == sha(FASTA)
    assert (local.name, local.notes, local.reference.parent) == ("pack", (), data / "pack")
    assert get("pack") == local
    assert leftovers(data / "pack") == ["a.fa", "a.fq"]
    assert [state(dataset) for dataset in available()[0] if dataset.name == "pack"] == ["ready"]


def test_a_package_that_is_not_installed_says_how(data: Path, tmp_path: Path) -> None:
    (tmp_path / "package" / "a.fq.gz").unlink()
    with pytest.raises(
        Missing, match=r"apt-get install --reinstall -o .*path-include=.* no-such-package-examples$"
    ):
        get("pack")
    assert state(load("pack")) == "partial"


def test_a_wrong_checksum_fails_with_both(data: Path, tmp_path: Path) -> None:
    package(tmp_path / "package", sum=sha(b"other"))
    with pytest.raises(RunFailed, match=f"{sha(READS)[7:]}, expected {sha(b'other')}"):
        get("pack")
    assert leftovers(data / "pack") == ["a.fa"]


@pytest.mark.parametrize(
    ("expect", "reason"),
    [("reads = 2001", "reads: 2000, expected 2001"), ("reads_about = 3000", "reads: 2000, expected about 3000")],
)
def test_facts_are_checked(data: Path, tmp_path: Path, expect: str, reason: str) -> None:
    package(tmp_path / "package", expect=expect)
    with pytest.raises(RunFailed, match=reason):
        get("pack")


# ---------------------------------------------------------------------------- the store


@pytest.mark.parametrize("damage", ["truncated", "changed", "removed", "changed, times set back"])
def test_a_damaged_file_is_got_again(data: Path, damage: str) -> None:
    path = get("pack").reads[0]
    times = path.stat()
    if damage == "removed":
        path.unlink()
    else:
        path.write_bytes(READS[:-4] if damage == "truncated" else READS.replace(b"A", b"C"))
    if "times" in damage:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert get("pack").reads[0].read_bytes() == READS


def test_a_copied_store_is_checked_once_and_not_fetched(data: Path, tmp_path: Path) -> None:
    path = get("pack").reads[0]
    path.write_bytes(path.read_bytes())  # the same content, another change time
    (tmp_path / "package" / "a.fq.gz").unlink()
    seen: list[str] = []
    get("pack", progress=lambda what, *_: seen.append(what))
    get("pack", progress=lambda what, *_: seen.append(what))
    assert set(seen) == {"checking a.fq"}
    assert len(seen) == 1


@pytest.mark.parametrize("junk", ["", "[1]", '{"a.fa": 3}', '{"a.fa": {"sha256": 1}}', "\x00"])
def test_a_damaged_record_names_the_file(data: Path, junk: str) -> None:
    get("pack")
    (data / "pack" / "state.json").write_text(junk)
    with pytest.raises(BadInput, match=r"state\.json: "):
        get("pack")


def test_a_store_that_cannot_be_made_says_what_to_set(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(tmp_path / "file" / "store"))
    with pytest.raises(Missing, match=r": Not a directory; .*FIRSTTOUCH_DATA"):
        get("pack")


@pytest.fixture
def small_store(small_disk: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store on a tmpfs of 128 KiB."""
    folder = small_disk("128k")
    monkeypatch.setenv("FIRSTTOUCH_DATA", str(folder))
    return folder


@pytest.mark.parametrize("stated", [True, False])
def test_a_full_disk_says_so_and_leaves_no_half(
    data: Path, server: Server, small_store: Path, stated: bool
) -> None:
    server.chunked = not stated  # without a length the disk is full in the middle, not before
    remote(server)
    with pytest.raises(Missing, match=r"^disk full at") as caught:
        get("web")
    assert "\n" not in str(caught.value)
    assert (str(len(server.content)) in str(caught.value)) == stated
    assert "w.fq" not in leftovers(small_store / "web")


def test_a_read_only_store_is_used_and_not_written(data: Path, tmp_path: Path, small_store: Path) -> None:
    local = get("pack")
    local.reads[0].chmod(0o600)  # another change time, so that it must be hashed
    subprocess.run(["mount", "-o", "remount,ro", str(small_store)], check=True)
    assert get("pack") == local
    manual()
    (tmp_path / "given").write_bytes(READS)
    with pytest.raises(Missing, match=r": Read-only file system"):
        get("hand", from_files=[tmp_path / "given"])


def test_unpacking_onto_a_full_disk_keeps_the_download(data: Path, server: Server, small_store: Path) -> None:
    server.content = gzip.compress(READS * 10)  # 3 kB packed, 700 kB unpacked
    remote(server)
    with pytest.raises(Missing, match=r"^disk full at"):
        get("web")
    assert leftovers(small_store / "web") == ["w.fq.part"]


# ---------------------------------------------------------------------------- downloads


def test_only_a_get_downloads(data: Path, server: Server) -> None:
    remote(server)
    assert [state(dataset) for dataset in available()[0] if dataset.name == "web"] == ["absent"]
    assert (server.asked, data.exists()) == ([], False)
    get("web")
    assert server.asked == [None]


def test_an_unpinned_download_is_trusted_once(data: Path, server: Server) -> None:
    remote(server, expect="reads = 3000")
    local = get("web")
    assert local.reads[0].read_bytes() == NOISE
    assert local.reference.read_bytes() == FASTA
    (note,) = local.notes
    assert note.startswith("w.fq: no published checksum (the authors publish none); its sha256 ")
    assert get("web").notes == local.notes
    assert leftovers(data / "web") == ["w.fq"]
    local.reads[0].unlink()
    server.content = gzip.compress(NOISE.replace(b"A", b"C"))
    with pytest.raises(RunFailed, match=r"first downloaded; .*remove"):
        get("web")
    (data / "web" / "state.json").unlink()
    assert get("web").reads[0].read_bytes() == NOISE.replace(b"A", b"C")


def test_a_pinned_download_that_is_another_file_is_removed(data: Path, server: Server) -> None:
    remote(server, sha(b"other"))
    with pytest.raises(RunFailed, match=r"expected sha256:.* --from"):
        get("web")
    assert leftovers(data / "web") == []


def test_the_packed_checksum_is_checked_first(data: Path, server: Server) -> None:
    packed = hashlib.md5(server.content, usedforsecurity=False).hexdigest()
    remote(server, sha(NOISE), extra=f'packed_checksum = "md5:{packed}"')
    assert get("web").reads[0].read_bytes() == NOISE
    remote(server, sha(NOISE), extra=f'packed_checksum = "md5:{packed[::-1]}"')
    with pytest.raises(RunFailed, match=f"md5 .*{packed}, .*{packed[::-1]}"):
        get("web")


def test_razip_s_index_after_the_data_is_no_harm_where_the_checksum_is_known(data: Path, server: Server) -> None:
    server.content += b"index of razip"  # as human_g1k_v37.fasta.gz has it
    remote(server, "md5:" + hashlib.md5(NOISE, usedforsecurity=False).hexdigest())
    assert get("web").reads[0].read_bytes() == NOISE
    assert get("web").notes == ()
    remote(server)
    with pytest.raises(RunFailed, match="corrupt gzip data"):
        get("web")


@pytest.mark.parametrize("flaw", ["truncated", "damaged", "a page"])
def test_a_download_that_is_not_whole_is_removed(data: Path, server: Server, flaw: str) -> None:
    middle = len(server.content) // 2
    server.content = {
        "truncated": server.content[:middle],
        "damaged": server.content[:middle] + b"x" * 99 + server.content[middle + 99 :],
        "a page": b"<html>Sign in</html>\n",
    }[flaw]
    remote(server)
    with pytest.raises(RunFailed, match="the file was removed"):
        get("web")
    assert leftovers(data / "web") == []


def test_the_beginning_of_a_file_cut_to_length(data: Path, server: Server) -> None:
    remote(server, extra="first_bytes = 60_000\nfirst_reads = 500\ntruncate = 4", expect="reads = 500")
    lines = NOISE.split(b"\n")[:2000]
    for part in (1, 3):
        lines[part::4] = [line[:4] for line in lines[part::4]]
    assert get("web").reads[0].read_bytes() == b"\n".join(lines) + b"\n"
    assert server.asked == ["bytes=0-59999"]


def test_a_dead_link_says_how_to_hand_it_in(data: Path, server: Server) -> None:
    server.statuses = [404]
    remote(server)
    with pytest.raises(Missing, match=r"404 Not Found.* firsttouch data get web --from FILE$"):
        get("web")


# ---------------------------------------------------------------------------- handed in


def manual(**changes: str) -> None:
    file = 'role = "reads"\nname = "m.fq"\nwhy_unpinned = "none is published"'
    describe(
        "hand",
        "manual",
        'reference = "pack"\nhow = "ask the authors"',
        file,
        expect=changes.get("expect", "reads_about = 2050"),
    )


@pytest.mark.parametrize("packed", [True, False])
def test_a_file_is_handed_in(data: Path, tmp_path: Path, packed: bool) -> None:
    manual()
    with pytest.raises(Missing, match=r"hand .*ask the authors"):
        get("hand")
    given = tmp_path / "given"
    given.write_bytes(gzip.compress(READS) if packed else READS)
    assert get("hand", from_files=[given]).reads[0].read_bytes() == READS
    given.unlink()
    assert get("hand").reads[0].read_bytes() == READS


def test_a_dead_link_takes_a_file(data: Path, tmp_path: Path, server: Server) -> None:
    remote(server, sha(NOISE))
    (tmp_path / "given").write_bytes(NOISE)
    get("web", from_files=[tmp_path / "given"])
    assert server.asked == []


@pytest.mark.parametrize(
    ("content", "reason"), [(READS[:-7], "unusable FASTQ"), (READS.split(b"@r16")[0], "expected about 2050")]
)
def test_a_wrong_file_is_bad_input(data: Path, tmp_path: Path, content: bytes, reason: str) -> None:
    manual()
    (tmp_path / "given").write_bytes(content)
    with pytest.raises(BadInput, match=f"given: .*({reason})"):
        get("hand", from_files=[tmp_path / "given"])
    assert leftovers(data / "hand") == []


def test_files_that_cannot_be_handed_in(data: Path, tmp_path: Path) -> None:
    manual()
    with pytest.raises(BadInput, match=r"none\.fq: no such file"):
        get("hand", from_files=[tmp_path / "none.fq"])
    with pytest.raises(BadInput, match=r"1 file \(m.fq\) .*--from"):
        get("hand", from_files=[tmp_path / "a", tmp_path / "b"])
    with pytest.raises(BadInput, match="--from"):
        get("pack", from_files=[tmp_path / "a"])


def test_options_are_for_generated_datasets(data: Path) -> None:
    with pytest.raises(BadInput, match=r"^pack .*'seed'"):
        get("pack", seed=3)


# ---------------------------------------------------------------------------- several processes


GET = "import sys; from firsttouch.datasets.fetch import get; get('web'); print('got')"


def start() -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", GET], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_get_is_gone_on_with(data: Path, server: Server, end: signal.Signals) -> None:
    remote(server)
    server.stall_after = 100_000
    part = data / "web" / "w.fq.part"
    with start() as process:
        wait_until(lambda: part.is_file() and part.stat().st_size >= 65536)
        process.send_signal(end)
        process.wait(120)
    assert leftovers(data / "web") == ["w.fq.part"]
    server.stall_after = None
    here = part.stat().st_size
    assert get("web").reads[0].read_bytes() == NOISE
    assert server.asked == [None, f"bytes={here}-"]
    assert leftovers(data / "web") == ["w.fq"]


def test_what_a_kill_left_of_unpacking_is_cleared(data: Path, server: Server) -> None:
    remote(server)
    (data / "web" / ".tmp-left").mkdir(parents=True)
    (data / "web" / ".tmp-left" / "w.fq").write_bytes(NOISE[:999])
    get("web")
    assert leftovers(data / "web") == ["w.fq"]


def test_two_gets_at_once_download_once(data: Path, server: Server) -> None:
    remote(server)
    server.stall_after = 100_000
    with start() as first, start() as second:
        wait_until(lambda: len(server.asked) == 1)
        # One of them downloads; the other one waits for the lock, which the kernel lists with an arrow.
        waiting = re.compile(rf"-> FLOCK .* ({first.pid}|{second.pid}) ")
        wait_until(lambda: waiting.search(Path("/proc/locks").read_text()) is not None)
        server.go.set()
        results = [process.communicate(timeout=120) for process in (first, second)]
    assert results == [("got\n", "")] * 2
    assert server.asked == [None]
    assert json.loads((data / "web" / "state.json").read_text())["w.fq"]["from"] == server.url

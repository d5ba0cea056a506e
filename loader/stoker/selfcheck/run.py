"""Runs awkward pictures through every back-end that is here, compares what comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from stoker.backends.cpu.packages import need
from stoker.backends.registry import compile_ops
from stoker.backends.tolerances import TOLERANCES, Tolerance
from stoker.selfcheck import making
from stoker.selfcheck.chains import Chain, chains
from stoker.selfcheck.compare import Finding, Outcome, judge
from stoker.selfcheck.contestants import Absent, Contestant, contestants

NO_GPU = "none was asked for"

_PACKAGES = (
    "stoker",
    "numpy",
    "pillow",
    "simplejpeg",
    "pylibjxl",
    "opencv-python-headless",
    "opencv-python",
    "torch",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
)


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, which back-ends were not there, the releases of the packages that made the pixels."""

    findings: tuple[Finding, ...]
    absent: tuple[Absent, ...]
    versions: Mapping[str, str]

    @property
    def is_good(self) -> bool:
        """Whether every verdict is the reference's and every difference within its limit."""
        return all(finding.is_good for finding in self.findings)


def run(
    device: str = "cpu",
    *,
    no_gpu: str = NO_GPU,
    tolerances: Sequence[Tolerance] = TOLERANCES,
    on_chain: Callable[[str, int, int], None] | None = None,
) -> Report:
    """Compare ``cpu`` with Pillow, then each other back-end with ``cpu``; about ten seconds.

    ``device`` is a GPU that is here, or ``"cpu"``, for which ``no_gpu`` says why. ``on_chain`` is told what comes next.
    Raises MissingDependencyError without the packages of ``stoker[cpu]``.
    """
    need("PIL.Image")
    from stoker.selfcheck import pictures

    good = pictures.awkward()
    files = {**good, **pictures.broken(), "damaged-scan.jpg": pictures.damaged_scan()}
    here, absent = contestants(device, no_gpu)
    by_name = {tolerance.chain: tolerance for tolerance in tolerances}
    findings: list[Finding] = []
    todo = [chain for chain in chains() if chain.name in by_name]
    for index, chain in enumerate(todo):
        if on_chain is not None:
            on_chain(chain.name, index, len(todo))
        own = {name: file for name, file in files.items() if name not in chain.leaves_out}
        findings += _compared(chain, own, by_name[chain.name], here, num_good=len(good.keys() & own.keys()))
    return Report(tuple(findings), tuple(absent), _versions())


def _compared(
    chain: Chain, files: Mapping[str, bytes], tolerance: Tolerance, here: Sequence[Contestant], *, num_good: int
) -> Iterator[Finding]:
    """Of the files, those that are no whole pictures stand last: Pillow reads some of them without a word."""
    program = compile_ops(chain.ops, "cpu")
    reference = making.make_all(program, files)
    if tolerance.pillow is not None:
        from stoker.selfcheck import pillow

        by_pillow = pillow.make_all(program, dict(list(files.items())[:num_good]))
        yield judge(chain.name, "cpu", "Pillow", tolerance.pillow, by_pillow, reference)
    for contestant in here:
        yield _beside(chain, files, tolerance, reference, contestant)


def _beside(
    chain: Chain,
    files: Mapping[str, bytes],
    tolerance: Tolerance,
    reference: Mapping[str, Outcome],
    contestant: Contestant,
) -> Finding:
    limit = contestant.limit(tolerance)
    try:
        made = making.make_all(compile_ops(chain.ops, contestant.backend), files)
    except RuntimeError as error:  # what DALI raises; a lost device is one too
        text = " ".join(str(error).split())
        return Finding(
            chain.name,
            contestant.name,
            "cpu",
            limit,
            contestant.is_measured,
            num_pictures=0,
            mean=0.0,
            max=0.0,
            border=0.0,
            worst="",
            problems=(f"the whole chain failed: {text}",),
        )
    return judge(chain.name, contestant.name, "cpu", limit, reference, made, is_measured=contestant.is_measured)


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

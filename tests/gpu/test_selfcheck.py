"""``stoker selfcheck`` on a GPU: every kind of awkward picture through every chain, within the published tolerances."""

from __future__ import annotations

import pytest

from stoker import selfcheck

pytestmark = pytest.mark.gpu


@pytest.mark.timeout(300)
def test_all_differences_are_within_what_is_published(dali: str) -> None:
    report = selfcheck.run(dali)
    assert [problem for finding in report.findings for problem in finding.problems] == []
    assert not report.absent
    assert len({finding.backend for finding in report.findings if dali in finding.backend}) == 2

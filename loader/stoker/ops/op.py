"""What every op is: a frozen spec that says which fields it touches."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from typing import Self


class Op:
    """One step of a pipeline.

    A subclass is decorated with :func:`stoker.spec.spec`. It holds no behaviour beyond pure functions that turn
    uniform numbers into decisions; how it is carried out is a back-end's matter.
    """

    is_code: ClassVar[bool] = False
    """Whether the op carries a user's function, so that the pipeline is not data alone."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Fields that must be there before this op."""
        return ()

    @property
    def writes(self) -> tuple[str, ...]:
        """Fields that are there after this op."""
        return ()

    @property
    def drops(self) -> tuple[str, ...]:
        """Fields that are gone after this op."""
        return ()

    @property
    def needs_image(self) -> tuple[str, ...]:
        """Fields that must hold a decoded picture before this op."""
        return ()

    @property
    def num_uniforms(self) -> int:
        """How many uniform float64 numbers in [0, 1) one sample needs; 0 for a deterministic op."""
        return 0

    @property
    def label(self) -> str:
        """The op's name and first field, for messages."""
        fields: tuple[Any, ...] = self.reads or self.needs_image
        return f"{type(self).__name__}({fields[0]!r})" if fields else type(self).__name__

    def to_json(self) -> dict[str, Any]:
        """The op as JSON values: its class name under ``op``, then its arguments."""
        arguments = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # specs are dataclasses
        return {"op": type(self).__name__, **arguments}

    def identity(self) -> dict[str, Any]:
        """What the pipeline's fingerprint is made of: two ops with equal identities do the same."""
        return self.to_json()

    @classmethod
    def from_json(cls, arguments: dict[str, Any], *, allow_code: bool) -> Self:  # noqa: ARG003  # for ops with code
        """Make the op from what :meth:`to_json` gave, without its ``op`` entry.

        ``allow_code`` permits ops that carry a user's function to import it. Raises SpecError.
        """
        return cls(**arguments)

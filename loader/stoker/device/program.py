"""What is done to a batch on its device: numbers made of the bytes that came."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import numpy as np

from stoker.errors import SpecError
from stoker.ops.cast import Cast
from stoker.ops.normalize import Normalize
from stoker.ops.op import Op
from stoker.ops.to_layout import ToLayout


@dataclass(frozen=True, slots=True)
class Step:
    """A few ops on one field that are done together: numbers, then channels first, then dtype."""

    field: str
    normalize: Normalize | None = None
    is_channels_first: bool = False
    dtype: str | None = None


def steps_of(device_ops: Sequence[object], pipeline_ops: Sequence[Op] = ()) -> list[Step]:
    """The ops as few steps; where channels stand does not depend on dtypes, so the two change places.

    Raises SpecError for an op of another kind, and for one on a picture whose channels were put first before it.
    """
    channels_first = {op.field: f"{op.label} of the pipeline" for op in pipeline_ops if _puts_first(op)}
    steps: list[Step] = []
    for op in device_ops:
        if not isinstance(op, Normalize | ToLayout | Cast):
            name = op.label if isinstance(op, Op) else repr(op)
            raise SpecError(
                f"device_ops: {name} is not done on a device, only Normalize, ToLayout and Cast; put it "
                "into the pipeline"
            )
        if op.field in channels_first and not isinstance(op, Cast):
            raise SpecError(
                f"device_ops: {op.label} stands after {channels_first[op.field]}, which must be the last "
                "on the field's pixels; leave that out there and end device_ops with it"
            )
        if _puts_first(op):
            channels_first[op.field] = op.label
        _append(steps, op)
    return steps


def _puts_first(op: object) -> TypeGuard[ToLayout]:
    return isinstance(op, ToLayout) and op.layout == "NCHW"


def _append(steps: list[Step], op: Normalize | ToLayout | Cast) -> None:
    last = next((i for i in reversed(range(len(steps))) if steps[i].field == op.field), None)
    before = Step(op.field) if last is None else steps[last]
    if isinstance(op, Normalize):
        last, step = None, Step(op.field, normalize=op)
    elif isinstance(op, ToLayout):
        step = replace(before, is_channels_first=op.layout == "NCHW")
    elif before.dtype is None:
        step = replace(before, dtype=op.dtype)
    else:
        last, step = None, Step(op.field, dtype=op.dtype)
    if last is None:
        steps.append(step)
    else:
        steps[last] = step


class DeviceProgram:
    """Carries out steps with torch, on whichever device the fields lie, in three kernels a step at most."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = tuple(steps)
        self._constants: dict[tuple[int, str], tuple[Any, Any]] = {}

    @property
    def fields(self) -> list[str]:
        """The fields that are made anew."""
        return list(dict.fromkeys(step.field for step in self._steps))

    def run(self, fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[Any]]:
        """The fields with those of the steps made anew, and what these were. Raises SpecError."""
        made = dict(fields)
        for index, step in enumerate(self._steps):
            tensor = _checked(made, step)
            made[step.field] = _cast(tensor, step) if step.normalize is None else self._normalized(index, tensor, step)
        return made, [fields[name] for name in self.fields]

    def _normalized(self, index: int, tensor: Any, step: Step) -> Any:
        """In the order of operations that the cpu back-end has, each rounded to float32."""
        torch: Any = importlib.import_module("torch")
        pixels = _placed(tensor, step)
        mean, std = self._constants_of(index, tensor.device, step)
        numbers = torch.empty(pixels.shape, dtype=torch.float32, device=tensor.device)
        if tensor.dtype == torch.uint8:
            torch.mul(pixels, torch.tensor(_scale(tensor.dtype)), out=numbers)
        else:
            numbers.copy_(pixels)
            if not tensor.dtype.is_floating_point and tensor.dtype != torch.bool:
                numbers.mul_(torch.tensor(_scale(tensor.dtype)))
        numbers.sub_(mean)
        dtype = torch.float32 if step.dtype is None else getattr(torch, step.dtype)
        if not dtype.is_floating_point:
            return numbers.div_(std).to(dtype)
        out = numbers if dtype == torch.float32 else torch.empty(pixels.shape, dtype=dtype, device=tensor.device)
        return torch.div(numbers, std, out=out)

    def _constants_of(self, index: int, device: Any, step: Step) -> tuple[Any, Any]:
        """Mean and deviation of each channel, on the device, in the shape that fits."""
        found = self._constants.get((index, str(device)))
        if found is None:
            torch: Any = importlib.import_module("torch")
            assert step.normalize is not None, "asked for by those that have one"
            shape = (-1, 1, 1) if step.is_channels_first else (-1,)
            mean, std = (
                torch.tensor(values, dtype=torch.float32, device=device).reshape(shape)
                for values in (step.normalize.mean, step.normalize.std)
            )
            found = self._constants[index, str(device)] = mean, std
        return found


def _scale(dtype: Any) -> np.float32:
    """What whole numbers are multiplied by, so that the largest is 1."""
    torch: Any = importlib.import_module("torch")
    return np.float32(1.0 / torch.iinfo(dtype).max)


def _placed(tensor: Any, step: Step) -> Any:
    """The tensor, its channels where they are to stand; a view."""
    return tensor.permute(0, 3, 1, 2) if step.is_channels_first else tensor


def _cast(tensor: Any, step: Step) -> Any:
    """Move channels and change the dtype in one kernel; contiguous."""
    torch: Any = importlib.import_module("torch")
    moved = _placed(tensor, step)
    dtype = tensor.dtype if step.dtype is None else getattr(torch, step.dtype)
    if dtype == tensor.dtype and moved.is_contiguous():
        return moved
    return torch.empty(moved.shape, dtype=dtype, device=tensor.device).copy_(moved)


def _checked(fields: Mapping[str, Any], step: Step) -> Any:
    """The field that a step is for. Raises SpecError if it is not there, or not what the step works on."""
    torch: Any = importlib.import_module("torch")
    name = f"device_ops: field {step.field!r}"
    if step.field not in fields:
        raise SpecError(f"{name} is not in the batch, which has {', '.join(map(repr, fields))}")
    tensor = fields[step.field]
    if not isinstance(tensor, torch.Tensor):
        raise SpecError(f"{name} is a {type(tensor).__name__}, not a tensor; bring its samples to one shape")
    if step.normalize is None and not step.is_channels_first:
        return tensor
    if tensor.ndim != 4:
        raise SpecError(f"{name} has the shape {tuple(tensor.shape)}; expected rows × height × width × channels")
    if step.normalize is not None and len(step.normalize.mean) not in (1, tensor.shape[3]):
        raise SpecError(f"{name}: {len(step.normalize.mean)} means for pictures of {tensor.shape[3]} channels")
    return tensor

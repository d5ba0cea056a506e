"""Where the channels of a picture stand."""

from __future__ import annotations

from typing import Literal

from stoker.ops.image_op import ImageOp
from stoker.spec import spec


@spec
class ToLayout(ImageOp):
    """Put the channels first (``"NCHW"``, as torch's layers expect) or last (``"NHWC"``); N stands for the batch.

    Ops on pictures work on channels that come last: with ``"NCHW"`` this is the field's last one.
    """

    field: str
    layout: Literal["NCHW", "NHWC"]

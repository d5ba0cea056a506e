"""Back-end ``cpu``: importing it registers what carries out each op."""

import stoker.backends.cpu.augment
import stoker.backends.cpu.blur
import stoker.backends.cpu.colour
import stoker.backends.cpu.decode
import stoker.backends.cpu.erase
import stoker.backends.cpu.fields
import stoker.backends.cpu.functions
import stoker.backends.cpu.geometry
import stoker.backends.cpu.numbers  # noqa: F401

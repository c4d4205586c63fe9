"""The presets that `pagelab calibrate` writes into the current folder: their names, and the first line of all of them.

Commands that do not calibrate look for them, without what calibrating imports.
"""

MACHINE = "this-machine"
KERNEL = "this-host"
FIRST_LINE = "# Written by `pagelab calibrate`"

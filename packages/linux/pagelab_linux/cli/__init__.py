"""The commands of `pagelab linux`, and how their figures are shown and written."""

"""Tools of this repository that are not part of the wheel."""

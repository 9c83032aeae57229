"""``python -m driftlaw`` is the command ``driftlaw``."""

from driftlaw.cli import main

if __name__ == "__main__":
    main()

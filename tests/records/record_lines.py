"""Lines of a small run record, and a function that writes them."""

import gzip

from driftlaw.records import dump_line
from driftlaw.records.run_record import FORMAT

HEADER = {"format": FORMAT, "method": "law", "seed": 3}
CLOSING = {"closing": True, "mean_error": 1.0}


def batch(number, segment, name, wrong, *, images=10, severity=5, round=0, seconds=1.0, facts=None):
    domain = {"name": name, "severity": severity, "round": round}
    line = {"batch": number, "segment": segment, "domain": domain, "images": images, "wrong": wrong}
    return line | {"facts": facts or {}, "timing": {"seconds": seconds}}


def write(path, *lines):
    content = b"".join(map(dump_line, lines))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path

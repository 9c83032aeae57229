"""Types of the lines of a run record. Keys that are not listed here may have any value."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from driftlaw.errors import DataError, describe_validation
from driftlaw.records.jsonl import Line

Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Numbers = list[Number | None]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True)  # "3" is not a number


class _Domain(_Fields):
    name: str
    severity: Count
    round: Count


class _Seconds(_Fields):
    seconds: Annotated[Number, Field(ge=0)]


class _Calibration(_Fields):
    count: list[Number]
    confidence: list[Number]
    correct: list[Number]


class _Iou(_Fields):
    intersection: list[Count]
    union: list[Count]


class _Frame(_Fields):
    input: str
    prediction: str
    truth: str


class BatchLine(_Fields):
    """Line of one batch."""

    batch: Count
    segment: Count
    domain: _Domain
    images: Count
    wrong: Count | None
    not_finite: Count = 0
    pixels: Count | None = None
    iou: _Iou | None = None
    facts: dict[str, Number | Numbers | None]
    timing: _Seconds
    kind: str = "step"
    cost: dict[str, Number] = {}
    calibration: _Calibration | None = None
    clean: dict[str, Count] = {}
    drift: Numbers = []
    frame: _Frame | None = None


class _RunTiming(_Fields):
    seconds: Number | None = None
    seconds_per_step: Number | None = None
    peak_bytes: Number | None = None
    load_average: dict[str, Number] = {}


class ClosingLine(_Fields):
    """Last line of a finished run."""

    mean_error: Number | None = None
    error_by_domain: dict[str, Number] = {}
    mean_iou: Number | None = None
    mean_iou_by_domain: dict[str, Number] = {}
    iou_by_class: dict[str, Number] = {}
    not_finite: Count = 0
    clean: dict[str, Count] = {}
    cost: dict[str, Number] = {}
    timing: _RunTiming = _RunTiming()


class _Model(_Fields):
    name: str | None = None
    weights: str | None = None
    sha256: str | None = None
    parameters: Count | None = None


class _Dataset(_Fields):
    name: str | None = None
    split: str | None = None
    count: Count | None = None
    sha256: str | None = None


class _Stream(_Fields):
    dataset: _Dataset | str | None = None
    schedule: str | None = None
    corruptions: list[str] | None = None
    batch_size: Count | None = None
    severity: Count | None = None
    images_per_domain: Count | None = None


class _Start(_Fields):
    started: Annotated[str, AfterValidator(lambda text: datetime.fromisoformat(text).isoformat())] | None = None


class _Device(_Fields):
    type: str | None = None
    name: str | None = None
    threads: Count | None = None


class HeaderLine(_Fields):
    """First line of a record. ``validate_record`` reports what is missing."""

    method: str
    seed: int
    title: str | None = None
    command: str | None = None
    driftlaw: str | None = None
    versions: dict[str, str] = {}
    device: _Device = _Device()
    settings: dict[str, Any] = {}
    execution: dict[str, Any] = {}
    stream: _Stream = _Stream()
    model: _Model = _Model()
    measures: dict[str, dict[str, Any]] = {}
    fact_labels: dict[str, list[str | int]] = {}
    reset_on: str | None = None
    batches: Count | None = None
    timing: _Start = _Start()


def check_line(kind: type[BaseModel], line: Line, where: str) -> None:
    """Raise DataError, with ``where`` in the message, if fields of a line are missing or have a wrong type."""
    try:
        kind.model_validate(line)
    except ValidationError as error:
        missing = [".".join(map(str, each["loc"])) for each in error.errors() if each["type"] == "missing"]
        reason = f"has no {', '.join(missing)}" if missing else f"has wrong values ({describe_validation(error)})"
        raise DataError(f"The record is damaged: {where} {reason}. Delete the file and run again.") from error

"""What happened, as plain data: the JSONL file that a run writes, reads back and resumes from."""

from driftlaw.records.jsonl import dump_line, read_lines
from driftlaw.records.run_record import RunRecord, Segment, find_records, read_record
from driftlaw.records.writer import RecordWriter

__all__ = ["RecordWriter", "RunRecord", "Segment", "dump_line", "find_records", "read_lines", "read_record"]

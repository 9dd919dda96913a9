"""Settings of formats: how text becomes a document. A mapping has one as `format`, and others for text inside a message.

A format is a word (`format = "ndjson"`) or a table (`format = { kind = "rows", separator = ";", header = true }`):

json      one JSON document.
ndjson    JSON documents, one per line: an array of them.
influx    Influx lines; see `influx` for their shape.
rows      delimited text, such as CSV or SmartREST: an array with an object for each row. `columns` names the cells, or
          `header` takes the names from the first row. If rows differ, `columns` is a table: the first cell (a glob) to
          the names of such a row; an empty list leaves such rows out.
          A name that ends with `?` may be missing at the row's end. A list at the end of the names is a group that
          repeats to the end of the row: an array `group` of objects. The name `""` leaves a cell out.
pairs     `key=value` text: an object, or with `lines` an array of objects. If `equals` is the same as `separator`, keys
          and values alternate (Ultralight); `columns` then names the values in front of the first key. With `&` between
          the pairs it is a form: `+` and `%20` are blanks. With blanks between the pairs a blank may follow `equals`.
text      the text itself, one value; `numbers` takes a number out of it.
auto      only in `inside`: JSON if it begins like JSON, else the text unchanged.
columns   only in `inside`: an object of arrays, not text. The arrays become an array `rows` of objects in its place, which
          keeps the members that are not columns. `columns` names the arrays, by default all; `by` names the one that
          gives the length, by default all have the same length. A column of another length is rejected.

A row that cannot be read is rejected alone. Cells lose blanks around them; an empty cell is absent; quotes are as in CSV.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

__all__ = ["Columns", "FormatSettings", "InsideFormat", "MessageFormat"]

Kind = Literal["json", "ndjson", "influx", "rows", "pairs", "text", "auto", "columns"]
Name = Annotated[str, Field(max_length=200)]
Columns = tuple[Name | tuple[Name, ...], ...]
_ONLY: Final = {
    "separator": ("rows", "pairs"),
    "lines": ("rows", "pairs"),
    "equals": ("pairs",),
    "columns": ("rows", "pairs", "columns"),
    "header": ("rows",),
    "decimal": ("rows", "pairs"),
    "by": ("columns",),
}
_MAX_COLUMNS: Final = 1000


class FormatSettings(BaseModel):
    """A format. A key that its kind does not use is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = Field(
        description="Kind of the format: json, ndjson, influx, rows, pairs or text; inside a message also auto and columns."
    )
    encoding: Literal["text", "base64", "hex"] = Field(
        "text",
        description="Encoding of the text: text (as it is), base64 (also its URL form) or hex. base64 and hex hold UTF-8 text.",
    )
    separator: str = Field(
        ",", min_length=1, max_length=8, description='Text between cells or pairs. " " means any number of blanks.'
    )
    lines: str | None = Field(
        None, min_length=1, max_length=8, description="Text between rows. Default: line ends; pairs have one row."
    )
    equals: str = Field("=", min_length=1, max_length=8, description="Text between key and value.")
    columns: Columns | dict[str, Columns] = Field(
        (), description="Names of the cells, in order; or a table: glob of the first cell to the names of such a row."
    )
    header: bool = Field(False, description="Take the names of the cells from the first row.")
    decimal: Literal[".", ","] = Field(".", description="Decimal separator of the numbers in cells.")
    by: str | None = Field(
        None, description="Column that gives the number of rows. Default: all columns must have the same length."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, kinds in _ONLY.items():
            if key in self.model_fields_set and self.kind not in kinds:
                message = f"{key} belongs to the kinds {' and '.join(kinds)}, not to {self.kind}"
                raise ValueError(message)
        if self.kind == "rows" and bool(self.columns) is self.header:
            message = "rows need either `columns` with the names of the cells or `header = true`, not both"
            raise ValueError(message)
        if self.kind != "rows" and (isinstance(self.columns, dict) or _groups(self.columns)):
            message = f"columns of the kind {self.kind} must be a list of names"
            raise ValueError(message)
        if self.kind == "columns" and self.encoding != "text":
            message = "columns are not text: remove `encoding`"
            raise ValueError(message)
        if self.kind in ("rows", "pairs") and self.separator == self.decimal:
            message = f"separator and decimal are both {self.decimal!r}: change one of them"
            raise ValueError(message)
        for names in self.columns.values() if isinstance(self.columns, dict) else (self.columns,):
            _check_names(names)
        return self


def _groups(names: Columns) -> list[tuple[str, ...]]:
    return [name for name in names if isinstance(name, tuple)]


def _check_names(names: Columns) -> None:
    groups = _groups(names)
    if len(groups) > 1 or (groups and names[-1] is not groups[0]):
        message = "a list may have only one group of columns, at its end"
        raise ValueError(message)
    for flat in ([name for name in names if isinstance(name, str)], *groups):
        if len(flat) > _MAX_COLUMNS:
            message = f"{len(flat)} columns: wanted at most {_MAX_COLUMNS}"
            raise ValueError(message)
        named = [name.removesuffix("?") for name in flat if name]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice or (groups and "group" in named):
            message = f"two columns are named {(twice or ['group'])[0]!r}"
            raise ValueError(message)
        optional = [name.endswith("?") for name in flat]
        if sorted(optional) != optional:
            message = "a column that may be missing (name?) must come after those that may not"
            raise ValueError(message)
    if any(name.endswith("?") for group in groups for name in group) or (groups and not groups[0]):
        message = "a group needs at least one column, and none of its columns may be missing (an empty cell is absent)"
        raise ValueError(message)


def _table(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _of_message(format_: FormatSettings) -> FormatSettings:
    if format_.kind in ("auto", "columns"):
        message = (
            f"the kind {format_.kind} is only for text inside a message: use inside = {{ path = {format_.kind!r} }}"
        )
        raise ValueError(message)
    return format_


InsideFormat = Annotated[FormatSettings, BeforeValidator(_table)]
MessageFormat = Annotated[FormatSettings, BeforeValidator(_table), AfterValidator(_of_message)]

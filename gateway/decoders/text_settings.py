"""How a text becomes a document, written as data: the `format` of a mapping, and of what stands inside a message.

A format is a word (`format = "ndjson"`) or a table (`format = { kind = "rows", separator = ";", header = true }`):

json      one JSON document.
ndjson    JSON documents, one a line: an array of them.
influx    Influx lines; see `influx` for their shape.
rows      delimited text, such as CSV or SmartREST: an array with an object for each row. `columns` names the cells, or
          `header` takes the names from the first row. Where rows differ, `columns` is a table: the first cell (a glob) to
          the names of such a row; an empty list leaves such rows out.
          A name that ends with `?` may be missing at the row's end. A list among the names, the last one, is a group that
          repeats to the end of the row: an array `group` of objects. The name `""` leaves a cell out.
pairs     `key=value` text: an object, or with `lines` an array of objects. Where `equals` is the same as `separator`, keys
          and values alternate (Ultralight); `columns` then names what may stand before the first key. With `&` between
          the pairs it is a form: `+` and `%20` are blanks. With blanks between the pairs a blank may follow `equals`.
text      the text itself, one value; `numbers` takes a number out of it.
auto      only in `inside`: JSON where it begins like JSON, else the text as it is.
columns   only in `inside`: no text but an object of arrays. They become an array `rows` of objects in its place, which
          keeps the members that are no columns. `columns` names the arrays, by default all; `by` names the one whose
          length counts, by default all are of the same length. A column of another length is refused.

A row that cannot be read costs itself. Cells lose blanks around them; an empty cell is absent; quotes are those of CSV.
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
    """A format; keys that its kind does not know are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    encoding: Literal["text", "base64", "hex"] = Field(
        "text", description="How the text itself is written: base64 (also its URL form) and hex hold UTF-8 text."
    )
    separator: str = Field(",", min_length=1, max_length=8, description='Between cells or pairs; " " is any blanks.')
    lines: str | None = Field(
        None, min_length=1, max_length=8, description="Between rows; default: line ends, of pairs none."
    )
    equals: str = Field("=", min_length=1, max_length=8, description="Between key and value.")
    columns: Columns | dict[str, Columns] = Field((), description="Names of the cells, in order.")
    header: bool = Field(False, description="The first row holds the names.")
    decimal: Literal[".", ","] = Field(".", description="The sign between whole and fraction of numbers in cells.")
    by: str | None = Field(None, description="The column whose length is that of all.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, kinds in _ONLY.items():
            if key in self.model_fields_set and self.kind not in kinds:
                message = f"{key} belongs to the kinds {' and '.join(kinds)}, not to {self.kind}"
                raise ValueError(message)
        if self.kind == "rows" and bool(self.columns) is self.header:
            message = "rows need either `columns` with the names of the cells or `header = true`, and not both"
            raise ValueError(message)
        if self.kind != "rows" and (isinstance(self.columns, dict) or _groups(self.columns)):
            message = f"columns of the kind {self.kind} are a list of names"
            raise ValueError(message)
        if self.kind == "columns" and self.encoding != "text":
            message = "columns are no text: leave `encoding` out"
            raise ValueError(message)
        if self.kind in ("rows", "pairs") and self.separator == self.decimal:
            message = f"separator and decimal are both {self.decimal!r}: give one of them"
            raise ValueError(message)
        for names in self.columns.values() if isinstance(self.columns, dict) else (self.columns,):
            _check_names(names)
        return self


def _groups(names: Columns) -> list[tuple[str, ...]]:
    return [name for name in names if isinstance(name, tuple)]


def _check_names(names: Columns) -> None:
    groups = _groups(names)
    if len(groups) > 1 or (groups and names[-1] is not groups[0]):
        message = "a group of columns is the last in the list, and the only one"
        raise ValueError(message)
    for flat in ([name for name in names if isinstance(name, str)], *groups):
        if len(flat) > _MAX_COLUMNS:
            message = f"{len(flat)} columns, wanted at most {_MAX_COLUMNS}"
            raise ValueError(message)
        named = [name.removesuffix("?") for name in flat if name]
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice or (groups and "group" in named):
            message = f"two columns are named {(twice or ['group'])[0]!r}"
            raise ValueError(message)
        optional = [name.endswith("?") for name in flat]
        if sorted(optional) != optional:
            message = "a column that may be missing (name?) stands behind those that may not"
            raise ValueError(message)
    if any(name.endswith("?") for group in groups for name in group) or (groups and not groups[0]):
        message = "a group has columns, and each of them is there (an empty cell is absent)"
        raise ValueError(message)


def _table(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _of_message(format_: FormatSettings) -> FormatSettings:
    if format_.kind in ("auto", "columns"):
        message = f"the kind {format_.kind} is of what stands inside a message: inside = {{ path = {format_.kind!r} }}"
        raise ValueError(message)
    return format_


InsideFormat = Annotated[FormatSettings, BeforeValidator(_table)]
MessageFormat = Annotated[FormatSettings, BeforeValidator(_table), AfterValidator(_of_message)]

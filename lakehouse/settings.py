"""Settings of hop 4: where the tables are."""

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["LakeSettings"]


class LakeSettings(BaseModel):
    """The tables' root and how long their log is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str = Field("tidegate-data/tables", description="Path or URI under which each table is a folder.")
    log_retention_hours: int = Field(24, ge=1, description="How far `sql --at` reaches back.")
    readings_days: int = Field(90, ge=0, description="Days of `readings` that are kept; 0 keeps all.")
    dead_letters_days: int = Field(
        90, ge=0, description="Days of `dead_letters` and `duplicates` that are kept; 0 keeps all."
    )
    rollups_days: int = Field(730, ge=0, description="Days of rollups and ledger that are kept; 0 keeps all.")
    drop_limit_ratio: float = Field(
        0.2,
        gt=0,
        le=1,
        description="Several days that hold more than this part of a table wait for `tidegate maintain --drop-days`.",
    )

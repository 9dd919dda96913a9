"""Views of a configuration: one per profile, and those that need no setting."""

from pathlib import Path
from typing import TYPE_CHECKING

from lakehouse.views import View, shipped_views, wide_view

if TYPE_CHECKING:
    from deploy.settings import Settings

__all__ = ["configured_views"]


def configured_views(settings: "Settings") -> list[View]:
    """Return every view; a rejected profile file has none, and a pattern in a profile is not a column."""
    from gateway.glob_patterns import is_glob
    from gateway.profiles.profile_folder import ProfileFolder

    views = shipped_views()
    if settings.gateway.profiles is None or not Path(settings.gateway.profiles).is_dir():
        return views
    for profile in ProfileFolder(Path(settings.gateway.profiles), strict=False).current.active():
        metrics = {name: rules.kind for name, rules in profile.metrics.items() if not is_glob(name)}
        if metrics:
            views.append(wide_view(profile.name, metrics, count_retained=settings.stream.count_retained))
    return list({view.name: view for view in reversed(views)}.values())[::-1]

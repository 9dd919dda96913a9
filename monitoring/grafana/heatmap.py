"""A panel that shows how the buckets of a histogram fill over time."""

from monitoring.grafana.panel import Panel, PanelQuery, field, panel

__all__ = ["heatmap"]


def heatmap(title: str, description: str, unit: str, query: PanelQuery, *, width: int = 12, height: int = 8) -> Panel:
    """Return a panel of a histogram's buckets over time; the query must give growth by `le`."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Viridis", "steps": 64, "exponent": 0.5, "fill": "dark-orange"},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"show": True, "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "reverse": False, "unit": unit},
    }
    made = panel("heatmap", title, description, (query,), field(unit, ()), options, width, height)
    made["targets"][0]["format"] = "heatmap"
    return made

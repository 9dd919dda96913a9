"""Every metric of the product: name, unit, labels, buckets. One class per process; the caller passes the registry.

Names: `tidegate_<hop>_<noun>_<unit>[_total]`; known names of other tools (kafka_exporter, node_exporter, mosquitto's `$SYS`, the
JMX exporter) are kept. Label values come from closed sets and start at 0, so that a rate exists before the first event. A
device, a topic with an id or a text is never a label: the number of series does not grow with the fleet.
"""

"""Every metric of the product: name, unit, labels, buckets. One class per process, on a registry passed in.

Names: `tidegate_<hop>_<noun>_<unit>[_total]`; names that other tools made known (kafka_exporter, node_exporter, mosquitto's
`$SYS`, the JMX exporter) are kept as they are. Label values come from closed sets and start at 0, so that a rate exists
before the first event. No device, no topic with an id and no text is ever a label: the series count does not grow with the
fleet.
"""

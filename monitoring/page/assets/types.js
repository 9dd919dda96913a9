// Types of the JSON that the monitor sends, for the type checker (tests/page_types.py). No browser loads this file.
// A tab that stays open over an update of the monitor may miss a section of a snapshot, so sections are optional.

/** @typedef {"ok" | "warn" | "bad" | "unknown"} State */
/** @typedef {number | null | undefined} Figure A number, or nothing while it is unknown. */
/** @typedef {number | string | null | undefined} Moment Epoch seconds or an ISO text. */
/** @typedef {(snapshot: Snapshot) => void} Update Shows a snapshot in a section. */

/**
 * @typedef {object} Session
 * @property {boolean} login True if reading needs a login.
 * @property {"none" | "read" | "write"} role
 * @property {boolean} session True if this browser has a session of its own, and not only a user of a proxy.
 */

/**
 * @typedef {object} Snapshot
 * @property {number} at
 * @property {string} [version]
 * @property {boolean} [ready]
 * @property {boolean} [read_only]
 * @property {boolean} [redrive] True if the monitor allows redrives, by a token or a user.
 * @property {Command | null} [command]
 * @property {Server} [prometheus]
 * @property {Server} [alertmanager]
 * @property {Record<string, PartState>} [parts]
 * @property {Station[]} [flow]
 * @property {Kafka} [kafka]
 * @property {Rates} [rates]
 * @property {Quantiles} [latency_ms] Of the canary.
 * @property {Hop[]} [hops]
 * @property {Quantiles} [readings_latency_ms]
 * @property {Record<string, number>} [clock_skew_ms] By hop.
 * @property {Record<string, number>} [lag] By topic.
 * @property {Rejections[]} [errors]
 * @property {Record<string, Objective>} [slo]
 * @property {Alert[]} [alerts]
 * @property {boolean} [burn_rate_alerts]
 * @property {Canary} [canary]
 * @property {Fleet} [devices]
 * @property {TableFigures[]} [tables]
 * @property {Disk} [disk]
 * @property {Host} [host]
 * @property {Audit | null} [audit]
 * @property {Record<string, number | null>} [point] One point of the charts, by series.
 */

/** @typedef {{ name?: string, where?: string, takes?: string }} Command */
/** @typedef {{ url: string | null, up: boolean | null }} Server */
/** @typedef {{ state: string, since: number | null, detail: string | null }} PartState */
/** @typedef {{ name: string, value: number | null, unit: string }} StationFigure */
/** @typedef {{ id: string, label: string, state: State, detail: string, figures: StationFigure[] }} Station */
/** @typedef {{ p50: number | null, p95: number | null, p99: number | null }} Quantiles In milliseconds. */
/** @typedef {{ hop: string } & Quantiles} Hop */
/** @typedef {{ reason: string, per_second: number | null, total: number, parts: number }} Rejections */

/**
 * @typedef {object} Rates Per second.
 * @property {number | null} received
 * @property {number | null} accepted
 * @property {number | null} readings
 * @property {number | null} dead_lettered
 * @property {number | null} ignored
 * @property {number | null} acknowledged
 * @property {number | null} rows
 */

/**
 * @typedef {object} Kafka
 * @property {number | null} brokers
 * @property {PartitionLag[]} partitions
 * @property {GroupLag[]} groups
 */

/**
 * @typedef {object} PartitionLag
 * @property {string} topic
 * @property {number} partition
 * @property {number | null} end
 * @property {number | null} committed
 * @property {number | null} lag
 * @property {number | null} per_second
 */

/**
 * @typedef {object} GroupLag
 * @property {string} group
 * @property {string} topic
 * @property {number | null} lag
 * @property {number | null} lag_seconds
 * @property {number | null} per_second
 * @property {number | null} time_to_data_loss_seconds
 */

/**
 * @typedef {object} Objective
 * @property {number} objective
 * @property {number | null} good_ratio
 * @property {number | null} budget_left
 * @property {boolean | null} burns
 * @property {number | null} threshold_seconds
 * @property {number | null} window_seconds
 */

/**
 * @typedef {object} Alert
 * @property {string} name
 * @property {string} severity `critical`, `warning` or `info`.
 * @property {string} state `firing`, `pending` or `resolved`.
 * @property {number} since
 * @property {number | null} value
 * @property {Record<string, string>} labels
 * @property {string} summary
 * @property {string} impact
 * @property {string[]} causes
 * @property {string[]} actions
 * @property {string} runbook
 * @property {string} source `builtin` or `prometheus`.
 * @property {string} part
 * @property {string} text
 * @property {string[]} explained_by Alerts that cause this one.
 */

/**
 * @typedef {object} Canary
 * @property {number | null} published
 * @property {number | null} seen
 * @property {number | null} last_seen_seconds_ago
 * @property {number | null} oldest_wait_seconds
 */

/**
 * @typedef {object} Fleet
 * @property {number | null} known
 * @property {number | null} active
 * @property {number} [silent_count]
 * @property {number} [values_stale]
 * @property {FleetDevice[]} silent
 * @property {FleetDevice[]} talkers
 * @property {FleetDevice[]} offenders
 * @property {FleetDevice[]} skewed
 */

/**
 * @typedef {object} FleetDevice A device in one of the lists; each list has some of the figures.
 * @property {string} device
 * @property {number | null} [last_seen]
 * @property {number | null} [silent_seconds]
 * @property {number | null} [interval_s]
 * @property {number} [received]
 * @property {number} [dead_lettered]
 * @property {string | null} [reason]
 * @property {number | null} [clock_skew_ms]
 */

/**
 * @typedef {object} TableFigures
 * @property {string} name
 * @property {number | null} version
 * @property {number | null} files
 * @property {number | null} small_files
 * @property {number | null} bytes
 * @property {number | null} last_commit_seconds_ago
 */

/** @typedef {{ free_bytes: number | null, full_days: number | null, full_at: number | null }} Disk */

/**
 * @typedef {object} Host
 * @property {number | null} cpu_ratio
 * @property {number | null} cpu_minute_ratio
 * @property {number | null} iowait_ratio
 * @property {number | null} memory_available_bytes
 * @property {number | null} memory_total_bytes
 */

/**
 * @typedef {object} Audit
 * @property {number} at
 * @property {number} messages
 * @property {number} unaccounted
 * @property {number} duplicate_rows
 * @property {number} order_violations
 * @property {string[]} [notes]
 */

/**
 * @typedef {object} Device
 * @property {string} device
 * @property {number | null} first_seen
 * @property {number | null} last_seen
 * @property {number | null} silent_seconds
 * @property {number | null} interval_s
 * @property {number | null} clock_skew_ms
 * @property {string | null} last_rejected_because
 * @property {number | null} last_rejected_at
 */

/**
 * @typedef {object} DeviceAnswer /api/device
 * @property {Device | null} device
 * @property {LeftOutField[] | null} left_out
 * @property {MetricReadings[]} metrics
 * @property {TextReadings[]} texts
 * @property {Record<string, number | null>} ledger
 * @property {number | null} refused_unread
 * @property {DeadLetter[]} dead_letters
 * @property {number | null} silent_seconds
 * @property {boolean | null} is_silent
 * @property {number | null} stale_since
 */

/** @typedef {{ metric: string, unit: string | null, at: Moment[], value: unknown[] }} MetricReadings */
/** @typedef {{ metric: string, text: string, first_at: number, last_at: number, count: number }} TextReadings */
/**
 * @typedef {object} LeftOutField
 * @property {string} gateway
 * @property {string} route
 * @property {string} field
 * @property {number} count
 * @property {number} since
 * @property {string | null} next
 */

/**
 * @typedef {object} DeadLetter
 * @property {string} id
 * @property {string} reason
 * @property {string | null} stage
 * @property {string | null} device
 * @property {string | null} mqtt_topic
 * @property {number | null} received_at
 * @property {string | null} path
 * @property {string | null} got
 * @property {string | null} wanted
 * @property {boolean | null} partial
 * @property {string | null} redriven_as
 */

/**
 * @typedef {object} LetterDetails /api/dead-letter, besides the facts of the list
 * @property {string | null} [message_id]
 * @property {string | null} [source_topic]
 * @property {number} [partition]
 * @property {number} [offset]
 * @property {string[]} payload_lines
 * @property {string} payload_base64
 * @property {number | null} [payload_bytes]
 * @property {string} next
 * @property {string | null} draft
 */

/** @typedef {DeadLetter & LetterDetails} WholeLetter */

/**
 * @typedef {object} CauseCounts
 * @property {number} letters
 * @property {number} redriven
 * @property {number | null} last_received_at
 */

/** @typedef {{ device: string | null, mqtt_topic: string | null } & CauseCounts} DeviceCause */
/** @typedef {{ reason: string, devices: number, by_device: DeviceCause[] } & CauseCounts} Cause */

/**
 * @typedef {object} RedriveReport
 * @property {number} accepted
 * @property {Record<string, number>} [ignored] By reason.
 * @property {RedriveExample[]} [examples]
 * @property {string[] | number} [unknown] Ids without a dead letter.
 */

/**
 * @typedef {object} RedriveExample
 * @property {string} [id]
 * @property {string} [ending]
 * @property {string} [reason]
 * @property {string | null} [path]
 * @property {string | null} [why]
 * @property {string | null} [wanted]
 */

/**
 * @typedef {object} Topic
 * @property {string} topic
 * @property {string | null} policy
 * @property {number | null} retention_seconds
 * @property {number | null} retention_bytes
 * @property {string | null} time_type `append` or `create`.
 * @property {Partition[]} partitions
 */

/**
 * @typedef {object} Partition
 * @property {number} partition
 * @property {number | null} first
 * @property {number | null} next
 * @property {number | null} records
 * @property {number | null} leader
 * @property {number | null} replicas
 * @property {number | null} in_sync
 * @property {number | null} [oldest_ms]
 * @property {number | null} [newest_ms]
 */

/**
 * @typedef {object} Piece Content of a record: text, or base64 of other bytes.
 * @property {string} [text]
 * @property {string} [base64]
 * @property {number} [bytes]
 * @property {boolean} [cut]
 */

/**
 * @typedef {object} KafkaRecord
 * @property {number} partition
 * @property {number} offset
 * @property {number | null} at_ms
 * @property {string | null} time_type
 * @property {number} size_bytes
 * @property {Piece | null} key
 * @property {{ name: string, value: Piece | null }[] | null} headers
 * @property {Piece | null} value
 */

/**
 * @typedef {object} FoundRecords /api/topic
 * @property {KafkaRecord[]} records
 * @property {string | null} older The place where the next older page begins.
 * @property {string | null} newer
 * @property {number} looked
 * @property {number} looked_bytes
 * @property {string | null} spent The limit that ended the search.
 * @property {number | null} back_to_ms
 * @property {number | null} only_partition
 * @property {boolean} gone
 * @property {number[]} silent Partitions that did not answer.
 */

export {};

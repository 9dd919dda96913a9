"""Metrics of Kafka's and Spark's JVMs from the JMX agent, under the names of the agent's public rules, in lower case.

The rules that emit them are `monitoring/jmx/kafka.yml` and `spark.yml`; the agent itself adds `jvm_*` and `process_*`. Kafka
creates some series only at the first event (`error` other than `NONE`), so their rates miss that event.
"""

from typing import Final

from monitoring.metrics.families import MetricFamily

__all__ = ["AGENT", "JVM", "KAFKA_JVM", "SPARK_JVM"]

_TOPICS: Final = "kafka_server_brokertopicmetrics"
_REQUESTS: Final = "kafka_network_requestmetrics"
_REPLICAS: Final = "kafka_server_replicamanager"
_QUERY: Final = ("query_name",)
_EXECUTOR: Final = ("executor_id",)

AGENT: Final = (
    MetricFamily("jvm_memory_used_bytes", "Bytes of memory that the JVM uses.", ("area",)),
    MetricFamily("jvm_memory_committed_bytes", "Bytes of memory that the JVM has reserved.", ("area",)),
    MetricFamily("jvm_memory_max_bytes", "Maximum bytes of memory for the JVM; -1 without a limit.", ("area",)),
    MetricFamily("jvm_buffer_pool_used_bytes", "Bytes in buffers outside the heap.", ("pool",)),
    MetricFamily("jvm_gc_collection_seconds_count", "Garbage collections.", ("gc",), "counter"),
    MetricFamily("jvm_gc_collection_seconds_sum", "Seconds in garbage collections.", ("gc",), "counter"),
    MetricFamily("jvm_threads_current", "Threads of the JVM."),
    MetricFamily("process_cpu_seconds_total", "CPU time of the process in seconds.", (), "counter"),
    MetricFamily("process_resident_memory_bytes", "Resident memory of the process in bytes; Linux only."),
    MetricFamily("process_open_fds", "Files that the process has open."),
    MetricFamily("process_max_fds", "Files that the process may have open."),
    MetricFamily("process_start_time_seconds", "Unix time of the process start."),
    MetricFamily("jmx_scrape_duration_seconds", "Seconds that the agent took to read the beans."),
    MetricFamily("jmx_scrape_error", "1 if the agent could not read the beans."),
)
"""Metrics of both JVMs that need no rule."""

KAFKA_JVM: Final = (
    MetricFamily(f"{_TOPICS}_bytesin_total", "Bytes received from producers, all topics together.", (), "counter"),
    MetricFamily(f"{_TOPICS}_bytesout_total", "Bytes sent to consumers, all topics together.", (), "counter"),
    MetricFamily(f"{_TOPICS}_bytesrejected_total", "Bytes of records rejected for their size.", (), "counter"),
    MetricFamily(f"{_TOPICS}_messagesin_total", "Records received from producers, all topics together.", (), "counter"),
    MetricFamily(
        f"{_TOPICS}_totalproducerequests_total", "Produce requests, counted once per topic in a request.", (), "counter"
    ),
    MetricFamily(
        f"{_TOPICS}_totalfetchrequests_total", "Fetch requests, counted once per topic in a request.", (), "counter"
    ),
    MetricFamily(
        f"{_TOPICS}_failedproducerequests_total",
        "Produce requests that failed because of the broker; mistakes of clients count as errors instead.",
        (),
        "counter",
    ),
    MetricFamily(
        f"{_TOPICS}_failedfetchrequests_total", "Fetch requests that failed because of the broker.", (), "counter"
    ),
    MetricFamily(
        f"{_REQUESTS}_totaltimems", "Milliseconds from request to response, by quantile.", ("request", "quantile")
    ),
    MetricFamily(
        f"{_REQUESTS}_totaltimems_mean",
        "Mean milliseconds from request to response since the broker's start; multiplied by the count it is the sum.",
        ("request",),
    ),
    MetricFamily(
        f"{_REQUESTS}_totaltimems_count", "Answered requests: Produce and FetchConsumer.", ("request",), "counter"
    ),
    MetricFamily(
        f"{_REQUESTS}_errors_total",
        "Answers by error; NONE is a success, so the error rate is the sum of all others.",
        ("request", "error"),
        "counter",
    ),
    MetricFamily("kafka_network_requestchannel_requestqueuesize", "Requests that wait for a handler."),
    MetricFamily(
        "kafka_network_socketserver_networkprocessoravgidlepercent", "Idle share of the network threads, 0 to 1."
    ),
    MetricFamily(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Idle share of the request handlers over the last minute, 0 to 1.",
    ),
    MetricFamily(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Waiting requests: Produce waits for replicas, Fetch for data.",
        ("delayedOperation",),
    ),
    MetricFamily(f"{_REPLICAS}_underreplicatedpartitions", "Partitions with a replica out of sync."),
    MetricFamily(
        f"{_REPLICAS}_underminisrpartitioncount", "Partitions with fewer replicas in sync than min.insync.replicas."
    ),
    MetricFamily(f"{_REPLICAS}_isrshrinks_total", "Times that a replica fell out of sync.", (), "counter"),
    MetricFamily(f"{_REPLICAS}_isrexpands_total", "Times that a replica came back in sync.", (), "counter"),
    MetricFamily(f"{_REPLICAS}_partitioncount", "Partitions on this broker."),
    MetricFamily(f"{_REPLICAS}_leadercount", "Partitions that this broker leads."),
    MetricFamily("kafka_controller_kafkacontroller_activecontrollercount", "1 on the active controller."),
    MetricFamily("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader."),
    MetricFamily(
        "kafka_server_raft_metrics_current_state", "1 for the current state of this node's controller.", ("state",)
    ),
    MetricFamily("kafka_log_log_size", "Bytes on disk of Tidegate's topics, by partition.", ("topic", "partition")),
    MetricFamily(
        "kafka_log_logmanager_offlinelogdirectorycount", "Data folders that Kafka no longer uses after a disk error."
    ),
)

SPARK_JVM: Final = (
    MetricFamily("spark_driver_structured_streaming_inputrate", "Rows per second that arrived.", _QUERY),
    MetricFamily(
        "spark_driver_structured_streaming_processingrate", "Rows per second that the query can process.", _QUERY
    ),
    MetricFamily("spark_driver_structured_streaming_latency", "Duration of the last batch in milliseconds.", _QUERY),
    MetricFamily(
        "spark_driver_structured_streaming_eventtime_watermark", "Watermark in epoch ms; 0 without one.", _QUERY
    ),
    MetricFamily("spark_driver_structured_streaming_states_rowstotal", "Rows in the query's state.", _QUERY),
    MetricFamily("spark_driver_structured_streaming_states_usedbytes", "Bytes of memory of the query's state.", _QUERY),
    MetricFamily("spark_driver_dagscheduler_job_activejobs", "Running jobs."),
    MetricFamily("spark_driver_dagscheduler_stage_waitingstages", "Waiting stages."),
    MetricFamily("spark_driver_dagscheduler_stage_failedstages", "Stages that failed since the start."),
    MetricFamily("spark_driver_blockmanager_memory_memused_mb", "Memory in MB of cached and broadcast data."),
    MetricFamily("spark_driver_livelistenerbus_queue_size", "Events that wait for listeners.", ("queue",)),
    MetricFamily("spark_driver_livelistenerbus_numdroppedevents_total", "Dropped events.", ("queue",), "counter"),
    MetricFamily("spark_executor_threadpool_activetasks", "Running tasks.", _EXECUTOR),
    MetricFamily("spark_executor_succeededtasks_total", "Completed tasks.", _EXECUTOR, "counter"),
    MetricFamily("spark_executor_cputime_total", "CPU time of tasks in nanoseconds.", _EXECUTOR, "counter"),
    MetricFamily("spark_executor_runtime_total", "Run time of tasks in milliseconds.", _EXECUTOR, "counter"),
    MetricFamily(
        "spark_executor_jvmgctime_total", "Garbage collection time during tasks in milliseconds.", _EXECUTOR, "counter"
    ),
    MetricFamily("spark_executor_recordsread_total", "Rows that tasks read.", _EXECUTOR, "counter"),
    MetricFamily("spark_executor_recordswritten_total", "Rows that tasks wrote.", _EXECUTOR, "counter"),
    MetricFamily(
        "spark_executor_shufflebyteswritten_total", "Bytes that tasks wrote to shuffles.", _EXECUTOR, "counter"
    ),
    MetricFamily(
        "spark_executor_diskbytesspilled_total",
        "Bytes spilled to disk because they did not fit into memory.",
        _EXECUTOR,
        "counter",
    ),
)
"""Metrics of Spark's driver. With a local master its only executor is the driver, and `executor_id` is `driver`."""

JVM: Final = (*AGENT, *KAFKA_JVM, *SPARK_JVM)

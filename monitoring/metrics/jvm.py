"""What the JMX agent tells of Kafka's and Spark's JVMs: the names of the agent's public rules, in lower case.

The rules that emit them are `monitoring/jmx/kafka.yml` and `spark.yml`; the agent adds `jvm_*` and `process_*` by itself. Kafka
makes some series only when the first such thing happens (`error` other than `NONE`), so their rates miss the first one.
"""

from typing import Final

from monitoring.metrics.families import Family

__all__ = ["AGENT", "JVM", "KAFKA_JVM", "SPARK_JVM"]

_TOPICS: Final = "kafka_server_brokertopicmetrics"
_REQUESTS: Final = "kafka_network_requestmetrics"
_REPLICAS: Final = "kafka_server_replicamanager"
_QUERY: Final = ("query_name",)
_EXECUTOR: Final = ("executor_id",)

AGENT: Final = (
    Family("jvm_memory_used_bytes", "Memory that the JVM uses.", ("area",)),
    Family("jvm_memory_committed_bytes", "Memory that the JVM has from the machine.", ("area",)),
    Family("jvm_memory_max_bytes", "Memory that the JVM may use at most; -1 without a limit.", ("area",)),
    Family("jvm_buffer_pool_used_bytes", "Buffers outside the heap.", ("pool",)),
    Family("jvm_gc_collection_seconds_count", "Garbage collections.", ("gc",), "counter"),
    Family("jvm_gc_collection_seconds_sum", "Time in garbage collections.", ("gc",), "counter"),
    Family("jvm_threads_current", "Threads."),
    Family("process_cpu_seconds_total", "CPU time of the process.", (), "counter"),
    Family("process_resident_memory_bytes", "Memory of the process; Linux only."),
    Family("process_open_fds", "Files that the process has open."),
    Family("process_max_fds", "Files that the process may have open."),
    Family("process_start_time_seconds", "When the process began."),
    Family("jmx_scrape_duration_seconds", "How long the agent took to read the beans."),
    Family("jmx_scrape_error", "1 where it could not."),
)
"""Of both JVMs, without a rule."""

KAFKA_JVM: Final = (
    Family(f"{_TOPICS}_bytesin_total", "Bytes that producers sent, all topics together.", (), "counter"),
    Family(f"{_TOPICS}_bytesout_total", "Bytes that consumers took, all topics together.", (), "counter"),
    Family(f"{_TOPICS}_bytesrejected_total", "Bytes of records that were refused for their size.", (), "counter"),
    Family(f"{_TOPICS}_messagesin_total", "Records that producers sent, all topics together.", (), "counter"),
    Family(f"{_TOPICS}_totalproducerequests_total", "Produce requests, one per topic in each.", (), "counter"),
    Family(f"{_TOPICS}_totalfetchrequests_total", "Fetch requests, one per topic in each.", (), "counter"),
    Family(
        f"{_TOPICS}_failedproducerequests_total",
        "Produce requests that failed by a fault of the broker's; what a client did wrong counts as an error.",
        (),
        "counter",
    ),
    Family(f"{_TOPICS}_failedfetchrequests_total", "Fetch requests that failed, likewise.", (), "counter"),
    Family(f"{_REQUESTS}_totaltimems", "Request to response, by quantile.", ("request", "quantile")),
    Family(
        f"{_REQUESTS}_totaltimems_mean",
        "Mean of request to response since the broker's start; times the count it is a sum.",
        ("request",),
    ),
    Family(f"{_REQUESTS}_totaltimems_count", "Requests answered: Produce and FetchConsumer.", ("request",), "counter"),
    Family(
        f"{_REQUESTS}_errors_total",
        "Answers by their error; NONE is a good one, so the error rate is the sum over all others.",
        ("request", "error"),
        "counter",
    ),
    Family("kafka_network_requestchannel_requestqueuesize", "Requests that wait for a handler."),
    Family("kafka_network_socketserver_networkprocessoravgidlepercent", "Idle share of the network threads, 0 to 1."),
    Family(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Idle share of the request handlers over the last minute, 0 to 1.",
    ),
    Family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests that wait for something: Produce for replicas, Fetch for data.",
        ("delayedOperation",),
    ),
    Family(f"{_REPLICAS}_underreplicatedpartitions", "Partitions with a replica out of sync."),
    Family(f"{_REPLICAS}_underminisrpartitioncount", "Partitions with fewer replicas in sync than they must have."),
    Family(f"{_REPLICAS}_isrshrinks_total", "Times that a replica fell out of sync.", (), "counter"),
    Family(f"{_REPLICAS}_isrexpands_total", "Times that a replica came back in sync.", (), "counter"),
    Family(f"{_REPLICAS}_partitioncount", "Partitions on this broker."),
    Family(f"{_REPLICAS}_leadercount", "Partitions that this broker leads."),
    Family("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller that leads."),
    Family("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader."),
    Family("kafka_server_raft_metrics_current_state", "1 for the state of this node's controller.", ("state",)),
    Family("kafka_log_log_size", "Bytes on disk; Tidegate's own topics.", ("topic", "partition")),
    Family("kafka_log_logmanager_offlinelogdirectorycount", "Data folders that Kafka gave up after a disk error."),
)

SPARK_JVM: Final = (
    Family("spark_driver_structured_streaming_inputrate", "Rows per second that came in.", _QUERY),
    Family("spark_driver_structured_streaming_processingrate", "Rows per second that it could work off.", _QUERY),
    Family("spark_driver_structured_streaming_latency", "Milliseconds of the last batch.", _QUERY),
    Family("spark_driver_structured_streaming_eventtime_watermark", "Watermark in epoch ms; 0 without one.", _QUERY),
    Family("spark_driver_structured_streaming_states_rowstotal", "Rows of state that the query remembers.", _QUERY),
    Family("spark_driver_structured_streaming_states_usedbytes", "Memory of that state.", _QUERY),
    Family("spark_driver_dagscheduler_job_activejobs", "Jobs that run."),
    Family("spark_driver_dagscheduler_stage_waitingstages", "Stages that wait for their turn."),
    Family("spark_driver_dagscheduler_stage_failedstages", "Stages that failed since the start."),
    Family("spark_driver_blockmanager_memory_memused_mb", "Memory of cached and broadcast data."),
    Family("spark_driver_livelistenerbus_queue_size", "Events that wait for their listeners.", ("queue",)),
    Family("spark_driver_livelistenerbus_numdroppedevents_total", "Events lost.", ("queue",), "counter"),
    Family("spark_executor_threadpool_activetasks", "Tasks that run.", _EXECUTOR),
    Family("spark_executor_succeededtasks_total", "Tasks done.", _EXECUTOR, "counter"),
    Family("spark_executor_cputime_total", "CPU time of tasks in nanoseconds.", _EXECUTOR, "counter"),
    Family("spark_executor_runtime_total", "Time of tasks in milliseconds.", _EXECUTOR, "counter"),
    Family("spark_executor_jvmgctime_total", "Collections during tasks, in milliseconds.", _EXECUTOR, "counter"),
    Family("spark_executor_recordsread_total", "Rows that tasks read.", _EXECUTOR, "counter"),
    Family("spark_executor_recordswritten_total", "Rows that tasks wrote.", _EXECUTOR, "counter"),
    Family("spark_executor_shufflebyteswritten_total", "Bytes that tasks shuffled.", _EXECUTOR, "counter"),
    Family("spark_executor_diskbytesspilled_total", "Bytes that did not fit into memory.", _EXECUTOR, "counter"),
)
"""Of Spark's driver; with a local master its one executor is the driver, and `executor_id` is `driver`."""

JVM: Final = (*AGENT, *KAFKA_JVM, *SPARK_JVM)

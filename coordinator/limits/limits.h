// The limits of one coordinator. A call beyond a limit is refused with a reason that names the
// limit. So one client or one job cannot slow down or end the others. docs/reference/limits.md
// lists the limits.
#ifndef MUSTER_COORDINATOR_LIMITS_LIMITS_H_
#define MUSTER_COORDINATOR_LIMITS_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace muster {

// The most parts of a message, counted before the message is parsed (service/message_limits.h).
struct MostParts {
  // Messages within the message, at any depth.
  size_t messages = 0;
  // Texts, bytes, and unknown fields.
  size_t texts = 0;
};

struct Limits {
  // All jobs, including ended jobs.
  size_t jobs = 100000;
  // The bytes of the encoded job files of all jobs, which are kept in memory.
  size_t spec_bytes = 256 << 20;
  // Jobs that have not ended. Each of them is examined whenever slots are assigned.
  size_t open_jobs = 5000;

  // Commands of a job that are not done. A stop and a cancel are always accepted.
  size_t open_commands = 20000;
  // All commands of a job, because every new process of the job gets the whole log. A stop and a
  // cancel are always accepted.
  size_t commands = 100000;
  // The bytes of the contents of all commands of a job, for the same reason.
  size_t command_bytes = 16 << 20;

  // The bytes of one encoded request of a client: a job file and the request's other fields.
  size_t request_bytes = (1 << 20) + (64 << 10);
  // The parts of a request. A list of texts may have 65,536 elements.
  MostParts request_parts = {.messages = 32768, .texts = 131072};
  // The bytes of single texts of a request. The settings of a job have their own limits
  // (common/jobspec/sizes.h).
  size_t job_id_bytes = 63;
  size_t operation_name_bytes = 96;
  size_t node_bytes = 255;
  size_t requested_by_bytes = 256;
  size_t page_token_bytes = 32;
  size_t path_bytes = 4095;
  size_t text_bytes = 4095;
  // The elements of each list of a request.
  int list_elements = 4096;
  // The text and settings of ParseJob. Reading the text takes up to 5 us per byte, and each setting
  // is looked up in the text's mappings again.
  size_t job_text_bytes = 128 << 10;
  size_t job_settings_bytes = 16 << 10;
  size_t job_settings_times_text_bytes = 1 << 20;

  // Request ids. They are kept in memory and in the store until a day after their job is deleted.
  size_t request_ids = 1000000;

  // Streams that follow a job, and calls that wait for an operation of the job.
  size_t followers_of_job = 200;
  // The same streams and calls over all jobs.
  size_t followers = 2000;
  // The same streams and calls of one host, so that other hosts can follow jobs, too.
  size_t followers_of_host = 1000;

  // Files that agents send to clients at the same time.
  size_t downloads = 16;

  // The elements of a page of a list.
  int page_size = 1000;
  // The size after which a page ends: the element that exceeds this size is the last of the page.
  // The size is well below the size limit of a message.
  size_t page_bytes = 4 << 20;

  // The time that an agent's or a worker's stream may be open without a message.
  int first_message_seconds = 10;
  // The size of a message before the agent's or worker's stream is accepted. The message is a Hello
  // with the last log lines of ended processes (worker/agent/wire.h).
  size_t first_message_bytes = 2 << 20;
  // The size of any later message. Reports that were left on a disk, and log lines, are sent in
  // messages of about 1 MiB. The names of a model's parameters are sent in one message.
  size_t peer_message_bytes = 4 << 20;
  // The parts of a message: 16,384 processes in each list of a Hello, or a message for each of a
  // model's parameters.
  MostParts peer_message_parts = {.messages = 131072, .texts = 262144};
  // Processes that a Hello may name in each of its lists: running, ended, and quarantined.
  int hello_processes = 16384;
  // Messages of one agent or worker that wait to be applied, for example while the store is in
  // trouble, and their bytes in memory.
  int messages_in_line = 16384;
  size_t bytes_in_line = 32 << 20;
  // Waiting messages before the stream is accepted.
  int first_messages_in_line = 16;
  // The bytes in memory of the waiting messages of all agents and workers.
  size_t all_bytes_in_line = 128 << 20;
  // Waiting messages and bytes above which log lines are dropped.
  int log_messages_in_line = 256;
  size_t log_bytes_in_line = 8 << 20;
  // Waiting heartbeats of one agent or worker. Further heartbeats are dropped.
  int heartbeats_in_line = 4;
  // The bytes of a GPU's name and uuid, because the list of nodes has all of them.
  size_t gpu_name_bytes = 128;
  size_t gpu_uuid_bytes = 64;
  // The bytes of texts in messages of agents and workers. Longer texts are cut.
  size_t progress_bytes = 1024;
  // A text that says why something failed or happened.
  size_t report_text_bytes = 16 << 10;
  // A log line: the longest line that agents send, with their mark.
  size_t log_line_bytes = (16 << 10) + 64;
  size_t log_tail_bytes = 64 << 10;
  // Nodes whose agents hold a lease.
  size_t nodes = 10000;
  // Nodes with facts that are kept longer than their agents' leases. Above this limit, nodes
  // without a lease are forgotten unless an operator or a series of failures has closed them.
  size_t node_marks = 20000;
  // Streams of agents and workers that have not been accepted yet.
  size_t unanswered_streams = 20000;
  // Bytes that may wait until one agent or worker reads them.
  size_t outbox_bytes = 64 << 20;
};

// The limits of every coordinator; tests may use others.
inline constexpr Limits kLimits{};

// The limits of HTTP requests from monitoring programs (`musterd --http`).
struct HttpLimits {
  // Connections whose request is not complete, and the time that they may be open.
  size_t requests = 64;
  int request_seconds = 5;
  // The bytes of the first line and all headers.
  size_t request_bytes = 8192;
  // Connections over which a response is being sent, and the time that they may be open.
  size_t responses = 32;
  int response_seconds = 10;
};
inline constexpr HttpLimits kHttpLimits{};

// The limits of what monitoring programs are told in detail. Everything else is only counted.
struct ObservedLimits {
  // Jobs with their own values: first jobs that have processes, then jobs that wait.
  size_t jobs = 1000;
  // Ranks with their own values, over all jobs.
  size_t ranks = 4096;
  // Nodes with their own values.
  size_t nodes = 1000;
  // Failed jobs and other ended jobs (each up to this number), and how long after their end they
  // are told.
  size_t ended_jobs = 100;
  int ended_seconds = 3600;
};
inline constexpr ObservedLimits kObservedLimits{};

}  // namespace muster

#endif  // MUSTER_COORDINATOR_LIMITS_LIMITS_H_

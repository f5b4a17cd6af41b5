// The limits of one coordinator. A call beyond a limit is refused with a reason that names it, so
// that one client or one job cannot slow down or end the others. docs/reference/limits.md lists
// them.
#ifndef MUSTER_COORDINATOR_LIMITS_LIMITS_H_
#define MUSTER_COORDINATOR_LIMITS_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace muster {

// Of the parts of a message, counted before it is parsed (service/message_limits.h).
struct MostParts {
  // Messages within it, at any depth.
  size_t messages = 0;
  // Texts, bytes, and fields that its type does not have.
  size_t texts = 0;
};

struct Limits {
  // Also those that have ended.
  size_t jobs = 100000;
  // The encoded job files of all jobs: they are kept in memory.
  size_t spec_bytes = 256 << 20;
  // Jobs that have not ended: each of them is examined whenever slots are assigned.
  size_t open_jobs = 5000;

  // Commands of a job that are not done. A stop and a cancel are always accepted.
  size_t open_commands = 20000;
  // Commands of a job in all: every new process of the job gets the whole log. A stop and a cancel
  // are always accepted.
  size_t commands = 100000;
  // The contents of a job's commands in all, for the same reason.
  size_t command_bytes = 16 << 20;

  // Of one encoded request of a client: a job file with the request's other fields.
  size_t request_bytes = (1 << 20) + (64 << 10);
  // A list of texts may have 65,536 elements.
  MostParts request_parts = {.messages = 32768, .texts = 131072};
  // Of the texts of a request. A job's settings have limits of their own (common/jobspec/sizes.h).
  size_t job_id_bytes = 63;
  size_t operation_name_bytes = 96;
  size_t node_bytes = 255;
  size_t requested_by_bytes = 256;
  size_t page_token_bytes = 32;
  size_t path_bytes = 4095;
  size_t text_bytes = 4095;
  // Of the lists of a request.
  int list_elements = 4096;
  // ParseJob: reading the text takes up to 5 us a byte, and each setting goes through the
  // text's mappings once more.
  size_t job_text_bytes = 128 << 10;
  size_t job_settings_bytes = 16 << 10;
  size_t job_settings_times_text_bytes = 1 << 20;

  // Kept in memory and in the store until a day after their job is deleted.
  size_t request_ids = 1000000;

  // Streams that follow a job, and calls that wait for an operation of it.
  size_t followers_of_job = 200;
  // The same over all jobs.
  size_t followers = 2000;
  // The same of one host, so that other hosts can follow jobs, too.
  size_t followers_of_host = 1000;

  // Files that agents send to clients at a time.
  size_t downloads = 16;

  // A page of a list.
  int page_size = 1000;
  // A page ends with the element that exceeds this size, which is well below the size limit of a
  // message.
  size_t page_bytes = 4 << 20;

  // How long an agent's or a worker's stream may be open without a message.
  int first_message_seconds = 10;
  // Of a message of an agent or worker before its stream was accepted: a Hello with the last lines
  // of its processes that have ended (worker/agent/wire.h).
  size_t first_message_bytes = 2 << 20;
  // Of any later message. Reports that were left on a disk, and log lines, are sent in messages of
  // about 1 MiB; the names of a model's parameters are sent in one message.
  size_t peer_message_bytes = 4 << 20;
  // 16,384 processes in each list of a Hello, and a message for each of a model's parameters.
  MostParts peer_message_parts = {.messages = 131072, .texts = 262144};
  // Processes that a Hello may name as running, as ended, and as hanging.
  int hello_processes = 16384;
  // Messages of one agent or worker that wait to be applied, as while the store is in trouble, and
  // the memory that they take.
  int messages_in_line = 16384;
  size_t bytes_in_line = 32 << 20;
  // The same before its stream was accepted.
  int first_messages_in_line = 16;
  // The memory of the messages of all agents and workers that wait.
  size_t all_bytes_in_line = 128 << 20;
  // Log lines are dropped if more messages wait, or more memory.
  int log_messages_in_line = 256;
  size_t log_bytes_in_line = 8 << 20;
  // Heartbeats of one agent or worker that wait: the others are left out.
  int heartbeats_in_line = 4;
  // Of what a GPU is called, and of its uuid: all of them are in the list of nodes.
  size_t gpu_name_bytes = 128;
  size_t gpu_uuid_bytes = 64;
  // Of texts in messages of agents and workers; longer ones are cut.
  size_t progress_bytes = 1024;
  // Why something failed or happened.
  size_t report_text_bytes = 16 << 10;
  // A line as long as agents send, with their mark.
  size_t log_line_bytes = (16 << 10) + 64;
  size_t log_tail_bytes = 64 << 10;
  // Nodes whose agents hold a lease.
  size_t nodes = 10000;
  // Nodes of which facts are kept longer than the lease of their agents. Beyond it, those of nodes
  // without a lease are forgotten, unless an operator or a series of failures has closed the node.
  size_t node_marks = 20000;
  // Streams of agents and workers that have not been accepted yet.
  size_t unanswered_streams = 20000;
  // How many bytes may wait until one agent or worker reads them.
  size_t outbox_bytes = 64 << 20;
};

// The limits of every coordinator; tests may use others.
inline constexpr Limits kLimits{};

// Of what programs that watch musterd ask for over HTTP (`musterd --http`).
struct HttpLimits {
  // Connections whose request is not complete, and for how long they may be open.
  size_t requests = 64;
  int request_seconds = 5;
  // Of the first line and all headers.
  size_t request_bytes = 8192;
  // Connections over which a response is being sent, and for how long they may be open.
  size_t responses = 32;
  int response_seconds = 10;
};
inline constexpr HttpLimits kHttpLimits{};

// What is told of a cluster to programs that watch it. The rest is only counted.
struct ObservedLimits {
  // Jobs with values of their own: those that have processes come first, then those that wait.
  size_t jobs = 1000;
  // Ranks with values of their own, over all jobs.
  size_t ranks = 4096;
  // Nodes with values of their own.
  size_t nodes = 1000;
  // Jobs that have failed, and those that have ended otherwise: so many of each, and for how long
  // they are told.
  size_t ended_jobs = 100;
  int ended_seconds = 3600;
};
inline constexpr ObservedLimits kObservedLimits{};

}  // namespace muster

#endif  // MUSTER_COORDINATOR_LIMITS_LIMITS_H_

// The way by which an agent gives a worker its secret.
#ifndef MUSTER_COMMON_SECRET_WORKER_VARIABLE_H_
#define MUSTER_COMMON_SECRET_WORKER_VARIABLE_H_

namespace muster::secret {

// The environment variable, whose value is in hexadecimal digits. Only the same user can read an
// environment, but everybody can read an argument.
inline constexpr char kWorkerVariable[] = "MUSTER_WORKER_SECRET";

}  // namespace muster::secret

#endif  // MUSTER_COMMON_SECRET_WORKER_VARIABLE_H_

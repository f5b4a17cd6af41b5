// A rendezvous store whose contents can be read and changed only with a secret.
//
// A TCPStore answers everybody who connects, and lists its keys. So a key is sent as its MAC with
// the secret, and a value is sent sealed together with its key (common/secret). A process without
// the secret can still remove or overwrite values. The ranks then fail, but do not take wrong
// values.
#ifndef MUSTER_WORKER_COMM_GLOO_SEALED_STORE_H_
#define MUSTER_WORKER_COMM_GLOO_SEALED_STORE_H_

#include <chrono>
#include <string>
#include <vector>

#include "torch/csrc/distributed/c10d/Store.hpp"

namespace muster::comm {

// A c10d::Store with sealed contents. Thread-safe if `store` is. Errors are exceptions, as in c10d.
class SealedStore : public c10d::Store {
 public:
  SealedStore(const std::string& secret, c10::intrusive_ptr<c10d::Store> store);

  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  // c10::DistStoreError if the value was set by a process that does not know the secret.
  std::vector<uint8_t> get(const std::string& key) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  // Not supported: the store would have to read sealed numbers.
  int64_t add(const std::string& key, int64_t value) override;
  // append, multiGet and multiSet, which Gloo does not need, are not supported.
  bool hasExtendedApi() const override { return false; }

 private:
  SealedStore(const SealedStore& other, c10::intrusive_ptr<c10d::Store> store);
  std::string Name(const std::string& key) const;
  std::vector<std::string> Names(const std::vector<std::string>& keys) const;

  const std::string name_secret_;
  const std::string value_secret_;
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace muster::comm

#endif  // MUSTER_WORKER_COMM_GLOO_SEALED_STORE_H_

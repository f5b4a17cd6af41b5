// A rendezvous store whose contents only those can read and change who know a secret.
//
// A TCPStore answers whoever connects, and lists its keys. So each key goes over the connection as
// its MAC with the secret, and each value sealed (common/secret), together with its key. Who does
// not know the secret can still remove or overwrite values; then the ranks fail, and are not
// misled.
#ifndef MUSTER_WORKER_COMM_GLOO_SEALED_STORE_H_
#define MUSTER_WORKER_COMM_GLOO_SEALED_STORE_H_

#include <chrono>
#include <string>
#include <vector>

#include "torch/csrc/distributed/c10d/Store.hpp"

namespace muster::comm {

// Thread-safe if `store` is. Errors are exceptions, as in c10d.
class SealedStore : public c10d::Store {
 public:
  SealedStore(const std::string& secret, c10::intrusive_ptr<c10d::Store> store);

  using c10d::Store::set;
  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  // c10::DistStoreError: somebody has given the value who does not know the secret.
  std::vector<uint8_t> get(const std::string& key) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;
  // The store would have to read sealed numbers.
  int64_t add(const std::string& key, int64_t value) override;
  // Gloo does without append, multiGet and multiSet.
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

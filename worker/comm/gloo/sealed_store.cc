#include "worker/comm/gloo/sealed_store.h"

#include <utility>

#include "absl/status/statusor.h"
#include "c10/util/Exception.h"
#include "common/secret/secret.h"

namespace muster::comm {

SealedStore::SealedStore(const std::string& secret, c10::intrusive_ptr<c10d::Store> store)
    : name_secret_(secret::Mac(secret, {"rendezvous", "name"})),
      value_secret_(secret::Mac(secret, {"rendezvous", "value"})),
      store_(std::move(store)) {}

SealedStore::SealedStore(const SealedStore& other, c10::intrusive_ptr<c10d::Store> store)
    : name_secret_(other.name_secret_),
      value_secret_(other.value_secret_),
      store_(std::move(store)) {}

c10::intrusive_ptr<c10d::Store> SealedStore::clone() {
  return c10::intrusive_ptr<SealedStore>::unsafe_steal_from_new(
      new SealedStore(*this, store_->clone()));
}

std::string SealedStore::Name(const std::string& key) const {
  return secret::ToHex(secret::Mac(name_secret_, {key}));
}

std::vector<std::string> SealedStore::Names(const std::vector<std::string>& keys) const {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(Name(key));
  return names;
}

void SealedStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  const std::string sealed =
      secret::Seal(value_secret_, key, std::string(value.begin(), value.end()));
  store_->set(Name(key), std::vector<uint8_t>(sealed.begin(), sealed.end()));
}

std::vector<uint8_t> SealedStore::get(const std::string& key) {
  const std::vector<uint8_t> sealed = store_->get(Name(key));
  const absl::StatusOr<std::string> value =
      secret::Unseal(value_secret_, key, std::string(sealed.begin(), sealed.end()));
  TORCH_CHECK_WITH(DistStoreError, value.ok(), "the value '", key,
                   "' of the rendezvous store was given by a process that does not know the "
                   "secret of this generation");
  return {value->begin(), value->end()};
}

bool SealedStore::deleteKey(const std::string& key) { return store_->deleteKey(Name(key)); }

bool SealedStore::check(const std::vector<std::string>& keys) { return store_->check(Names(keys)); }

int64_t SealedStore::getNumKeys() { return store_->getNumKeys(); }

void SealedStore::wait(const std::vector<std::string>& keys) { store_->wait(Names(keys)); }

void SealedStore::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  store_->wait(Names(keys), timeout);
}

const std::chrono::milliseconds& SealedStore::getTimeout() const noexcept {
  return store_->getTimeout();
}

void SealedStore::setTimeout(const std::chrono::milliseconds& timeout) {
  store_->setTimeout(timeout);
}

int64_t SealedStore::add(const std::string& /*key*/, int64_t /*value*/) {
  C10_THROW_ERROR(NotImplementedError, "a sealed store does not count");
}

}  // namespace muster::comm

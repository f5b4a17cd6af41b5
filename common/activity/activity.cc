#include "common/activity/activity.h"

#include <utility>

namespace muster::activity {
namespace {

thread_local Activity* current = nullptr;

}  // namespace

Scope::Scope(Activity* activity) : outer_(std::exchange(current, activity)) {}
Scope::~Scope() { current = outer_; }

Activity* Current() { return current; }

void Moved() {
  if (current != nullptr) current->Moved();
}

}  // namespace muster::activity

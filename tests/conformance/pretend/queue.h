// SPDX-License-Identifier: Apache-2.0
// A device in host memory whose streams can be captured: what a stream's capture recorded runs when the graph is launched.
// Shared by the pretended provider and the backend that queues on it. One thread at a time.
#pragma once

#include <functional>
#include <vector>

namespace pretend {

using Work = std::function<void()>;

struct Stream {
  std::vector<Work>* captured = nullptr;  // null: work runs at once
};

struct Graph {
  std::vector<Work> work;
};

// A null stream is the default one, which is never captured.
inline void queue(void* stream, Work work) {
  auto* const own = static_cast<Stream*>(stream);
  if (own && own->captured) {
    own->captured->push_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace pretend

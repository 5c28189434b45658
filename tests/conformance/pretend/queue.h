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
  std::vector<Work> late;  // copies from the host, which run before the stream's next work or when it is waited for
};

struct Graph {
  std::vector<Work> work;
};

inline void run_late(Stream* stream) {
  if (!stream) return;
  for (const Work& work : stream->late) work();
  stream->late.clear();
}

// A null stream is the default one, which is never captured.
inline void queue(void* stream, Work work) {
  auto* const own = static_cast<Stream*>(stream);
  if (own && own->captured) {
    own->captured->push_back(std::move(work));
  } else {
    run_late(own);
    work();
  }
}

}  // namespace pretend

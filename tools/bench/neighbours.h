// SPDX-License-Identifier: Apache-2.0
// How much of the machine other programs had while something was measured. Included by timing.
// Says nothing of the memory bus: that is what the limits beside each row are for.
#pragma once

#include <cstdint>

namespace anyattn::tools::bench {

class Neighbours {
 public:
  Neighbours();  // from now on
  // Of all processors' time since then, what neither this process nor idleness had, time stolen by the hypervisor among it;
  // in ticks of 10 ms. 0 where the system does not say.
  double share() const;

 private:
  struct Ticks {
    uint64_t all = 0, busy = 0, own = 0;
  };
  static Ticks now();
  Ticks start_;
};

}  // namespace anyattn::tools::bench

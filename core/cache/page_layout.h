// SPDX-License-Identifier: Apache-2.0
// How one block of device memory is cut so that groups with unlike block bytes share it: pages, and blocks in a page.
// Included by block_manager and the C API. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "anyattn/types.h"

namespace anyattn::cache {

// What a group asks for.
struct GroupNeed {
  uint32_t num_layers = 1;
  uint32_t ratio = 1;               // kernel blocks a manager block
  uint64_t kernel_block_bytes = 0;  // of one layer
  uint32_t alignment = 256;         // of a layer's base and of the block stride
};

// Layer l of kernel block b of group g starts at b * kernel_stride + l * layer_stride from the start of the memory.
struct GroupLayout {
  uint64_t layer_stride = 0;     // bytes, at least kernel_block_bytes
  uint64_t kernel_stride = 0;    // bytes, at least num_layers * layer_stride
  uint32_t blocks_per_page = 0;  // manager blocks
};

struct PageLayout {
  uint64_t page_bytes = 0;
  std::vector<GroupLayout> groups;
};

// The smallest page in which no group wastes more than 1/32, else the one that wastes least. OUT_OF_MEMORY when no page below
// 2^40 bytes holds a whole number of everybody's blocks.
int32_t plan_pages(std::span<const GroupNeed> needs, PageLayout* layout, anyattn_error* error);

}  // namespace anyattn::cache

// SPDX-License-Identifier: Apache-2.0
// Fills the folder `prebuilt` beside the plugin: code of common shapes, for machines without a run-time compiler.
//   anyattn-portable-prebuild PLUGIN.so FOLDER [ARCHITECTURE...]
// A file's name is the digest of everything that decides about its code, so an old one is never used and may be removed.
#include <cstdio>
#include <filesystem>

#include "absent_device.h"

namespace {

namespace fs = std::filesystem;
using anyattn::portable::Shape;

constexpr uintmax_t kMostBytes = 24u << 20;

// Heads of models in config/models.yaml, at the block sizes of this backend's choice and of most engines.
constexpr Shape kShapes[] = {
    {32, 8, 128, 64, 0},                        // Llama-3.1-8B, Qwen3-8B, Mixtral-8x7B
    {32, 8, 128, 16, 0}, {64, 8, 128, 64, 0},   // Llama-3.1-70B
    {64, 8, 128, 16, 0}, {32, 8, 64, 64, 0},    // Llama-3.2-1B
    {16, 8, 256, 64, 0}, {128, 0, 576, 64, 0},  // DeepSeek-V3
    {16, 0, 576, 64, 0},                        // DeepSeek-V2-Lite, or V3 over eight devices
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "anyattn-portable-prebuild PLUGIN.so FOLDER [ARCHITECTURE...]\n");
    return 2;
  }
  try {
    const fs::path folder = fs::absolute(argv[2]);
    fs::remove_all(folder);
    anyattn::portable::OpenPlugin plugin(fs::absolute(argv[1]).string(), {{"cache", folder.string()}, {"warmup", "compile"}});
    std::vector<std::string> architectures(argv + 3, argv + argc);
    if (architectures.empty()) architectures = {"sm_80", "sm_90"};
    for (const std::string& architecture : architectures) {
      const anyattn_device_facts facts = anyattn::portable::absent_device(architecture);
      for (Shape shape : kShapes) {
        for (const uint32_t dtype : {ANYATTN_DTYPE_BFLOAT16, ANYATTN_DTYPE_FLOAT16}) {
          shape.dtype = dtype;
          plugin.warm(facts, shape);
        }
      }
    }
    uintmax_t bytes = 0, files = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      bytes += entry.file_size();
      ++files;
      fs::permissions(entry.path(), fs::perms::group_read | fs::perms::others_read, fs::perm_options::add);
    }
    fs::permissions(folder, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read |
                                fs::perms::others_exec);
    std::printf("%ju files, %.1f MiB\n", files, static_cast<double>(bytes) / (1 << 20));
    if (bytes <= kMostBytes) return 0;
    std::fprintf(stderr, "anyattn-portable-prebuild: more than %ju MiB; take shapes out of the list\n", kMostBytes >> 20);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "anyattn-portable-prebuild: %s\n", failure.what());
  }
  return 1;
}

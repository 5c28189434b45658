// SPDX-License-Identifier: Apache-2.0
// Writes the programs of AMD's plugin for a device of 64 KiB, as it would compile them, and the files that they include, into a
// folder: `program_texts FOLDER`. Those of a device with matrix cores are called wave_*. Read by kernel_text.py.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "compiler.h"
#include "portable_source.h"
#include "problems.h"

namespace {

using namespace anyattn::portable;

struct Problem {
  const char* name;
  Specialisation spec;
  bool whole;  // every program, not attention's alone: what the others compute differs little
};

void write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = std::string(argv[1]) + "/";
  for (size_t i = 0; i < std::size(kSourceNames); ++i) write(folder + kSourceNames[i], kSourceTexts[i]);

  const Problem problems[] = {
      {"plain_64", plain(kBF16, kBF16, 64, 8), true},
      {"plain_256", plain(kBF16, kBF16, 256, 4), false},
      {"plain_576", plain(kBF16, kBF16, 576, 4), false},
      {"float32_128", plain(kF32, kF32, 128, 4), false},
      {"e4m3_128", plain(kBF16, kRowsE4M3, 128, 4), false},
      {"int4_128", plain(kBF16, kRowsInt4Scaled, 128, 4), false},
      {"latent_128_heads", latent(kBF16, kBF16, 512, 64, 128), false},
      {"records_16_heads", latent(kBF16, kRowsRecord, 512, 64, 16), false},
      {"mha_192_128", direct(kBF16, 192, 128), false},
      {"wave_64", plain(kBF16, kBF16, 64, 8), false},
      {"wave_half_80", plain(kF16, kF16, 80, 1), false},  // an odd number of steps of 16 columns
      {"wave_256", plain(kBF16, kBF16, 256, 4), false},
      {"wave_latent_128_heads", latent(kBF16, kBF16, 512, 64, 128), false},
      {"wave_mha_192_128", direct(kBF16, 192, 128), false},
  };
  anyattn_host host{};
  host.struct_size = ANYATTN_HOST_SIZE;
  for (Problem problem : problems) {
    const bool wave = std::string_view(problem.name).starts_with("wave_");
    const anyattn_device_facts facts = wave ? wave_device() : small_device();
    choose_tiles(anyattn::Host(&host), facts, problem.spec);
    if (!tiles_fit(facts, problem.spec) || problem.spec.cfg.matrix != (wave ? 64 : 0)) return 1;
    for (const Program& program : programs_of(problem.spec))
      if (problem.whole || program.part == Program::kAttend)
        write(anyattn::text(folder, problem.name, "_", program.lane, static_cast<int>(program.part), ".hip"),
              program_text(problem.spec, program));
  }
  return 0;
}

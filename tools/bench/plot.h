// SPDX-License-Identifier: Apache-2.0
// Lines over a logarithmic axis as inline SVG. Included by html. Knows no bench.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace anyattn::tools::bench {

struct Series {
  std::string label;
  std::vector<std::pair<double, double>> points;  // x ascending, both > 0
};

enum class Scale { kLog, kPercent };  // of y; percent: values are shares, from 0 to 1 at least

struct Plot {
  std::string title, x_label, y_label;
  Scale scale = Scale::kLog;
  std::vector<Series> series;
};

// One <svg> with axes, lines, points with tooltips and a legend. Colours come from the page: classes s0 to s7.
std::string svg_of(const Plot& plot);

// Text for HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace anyattn::tools::bench

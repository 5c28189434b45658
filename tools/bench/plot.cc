// SPDX-License-Identifier: Apache-2.0
#include "bench/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace anyattn::tools::bench {
namespace {

constexpr double kWidth = 560, kHeight = 300, kLeft = 64, kRight = 16, kTop = 34, kBottom = 44;
constexpr double kLegendRow = 17;
constexpr size_t kColours = 8;

// 1500 -> "1500", 32768 -> "32 k", 2500000 -> "2.5 M".
std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:g} M", std::round(value / 1e4) / 100);
  if (value >= 4096 && std::fmod(value, 1024) == 0) return fmt::format("{:g} k", value / 1024);
  if (value >= 1e4) return fmt::format("{:g} k", std::round(value / 10) / 100);
  return fmt::format("{:g}", std::round(value * 100) / 100);
}

// Where values lie on the picture.
class Frame {
 public:
  explicit Frame(const Plot& plot) : scale_(plot.scale) {
    double x_low = 1e300, x_high = 0, y_low = 1e300, y_high = 0;
    for (const Series& series : plot.series) {
      for (const auto& [x, y] : series.points) {
        x_low = std::min(x_low, x);
        x_high = std::max(x_high, x);
        y_low = std::min(y_low, y);
        y_high = std::max(y_high, y);
        xs_.insert(x);
      }
    }
    x_low_ = std::log(x_low / 1.15);
    x_high_ = std::log(x_high * 1.15);
    y_low_ = scale_ == Scale::kLog ? std::log(y_low / 1.3) : 0;
    y_high_ = scale_ == Scale::kLog ? std::log(y_high * 1.3) : std::max(1.05, y_high * 1.05);
  }
  double x(double value) const { return kLeft + (std::log(value) - x_low_) / (x_high_ - x_low_) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    const double at = scale_ == Scale::kLog ? std::log(value) : value;
    return kHeight - kBottom - (at - y_low_) / (y_high_ - y_low_) * (kHeight - kTop - kBottom);
  }
  const std::set<double>& xs() const { return xs_; }
  // Of y: 1, 2 and 5 of each decade, or tenths and fifths.
  std::vector<double> ticks() const {
    std::vector<double> ticks;
    if (scale_ == Scale::kPercent) {
      for (double share = 0; share < y_high_; share += 0.2) ticks.push_back(share);
      return ticks;
    }
    const bool wide = y_high_ - y_low_ > std::log(300.0);
    for (double decade = std::pow(10, std::floor(y_low_ / std::log(10.0))); std::log(decade) < y_high_; decade *= 10) {
      for (const double step : {1.0, 2.0, 5.0}) {
        if (wide && step != 1.0) continue;
        if (std::log(decade * step) > y_low_ && std::log(decade * step) < y_high_) ticks.push_back(decade * step);
      }
    }
    return ticks;
  }

 private:
  Scale scale_;
  double x_low_, x_high_, y_low_, y_high_;
  std::set<double> xs_;
};

std::string value_text(const Plot& plot, double value) {
  return plot.scale == Scale::kPercent ? fmt::format("{:.0f} %", 100 * value) : short_number(value);
}

std::string axes(const Plot& plot, const Frame& frame) {
  std::string out;
  for (const double tick : frame.ticks()) {
    const double y = frame.y(tick);
    out += fmt::format("<line class='grid' x1='{}' x2='{}' y1='{:.1f}' y2='{:.1f}'/>", kLeft, kWidth - kRight, y, y);
    out += fmt::format("<text class='end' x='{}' y='{:.1f}'>{}</text>", kLeft - 6, y + 4, value_text(plot, tick));
  }
  double last = -100;
  for (const double x : frame.xs()) {
    if (frame.x(x) - last < 40) continue;  // labels would meet
    last = frame.x(x);
    out += fmt::format("<text class='mid' x='{:.1f}' y='{}'>{}</text>", last, kHeight - kBottom + 16, short_number(x));
  }
  out += fmt::format("<line class='axis' x1='{0}' x2='{1}' y1='{2}' y2='{2}'/>", kLeft, kWidth - kRight, kHeight - kBottom);
  out += fmt::format("<text class='mid' x='{}' y='{}'>{}</text>", (kLeft + kWidth - kRight) / 2, kHeight - 8,
                     escaped(plot.x_label));
  out += fmt::format("<text class='title' x='{}' y='16'>{}</text><text class='end' x='{}' y='16'>{}</text>", 8,
                     escaped(plot.title), kWidth - kRight, escaped(plot.y_label));
  return out;
}

std::string line(const Plot& plot, const Frame& frame, size_t index) {
  const Series& series = plot.series[index];
  const std::string look = fmt::format("s{}{}", index % kColours, index >= kColours ? " dashed" : "");
  std::string path, dots;
  for (const auto& [x, y] : series.points) {
    path += fmt::format("{}{:.1f},{:.1f} ", path.empty() ? "M" : "L", frame.x(x), frame.y(y));
    dots += fmt::format("<circle class='{}' cx='{:.1f}' cy='{:.1f}' r='3.5'><title>{}: {} at {}</title></circle>", look,
                        frame.x(x), frame.y(y), escaped(series.label), value_text(plot, y), short_number(x));
  }
  const double y = kHeight + kLegendRow * static_cast<double>(index) + 6;
  return fmt::format("<path class='{}' d='{}'/>{}<path class='{}' d='M{},{} h26'/><text x='{}' y='{}'>{}</text>", look, path,
                     dots, look, kLeft, y, kLeft + 34, y + 4, escaped(series.label));
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg_of(const Plot& plot) {
  const Frame frame(plot);
  const double height = kHeight + kLegendRow * static_cast<double>(plot.series.size()) + 8;
  std::string out =
      fmt::format("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}'>", kWidth, height);
  out += axes(plot, frame);
  for (size_t i = 0; i < plot.series.size(); ++i) out += line(plot, frame, i);
  return out + "</svg>\n";
}

}  // namespace anyattn::tools::bench

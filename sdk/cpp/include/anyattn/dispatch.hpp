// SPDX-License-Identifier: Apache-2.0
// From a value at run time to a constant at compile time, without macros.
// Included where a kernel has instances for a list of values.
#pragma once

#include <type_traits>
#include <utility>

namespace anyattn {

// Calls f(std::integral_constant<T, V>{}) for the V equal to `value`; false if the list has none.
template <class T, T... Vs, class F>
constexpr bool dispatch(T value, std::integer_sequence<T, Vs...>, F&& f) {
  return ((value == Vs && (f(std::integral_constant<T, Vs>{}), true)) || ...);
}

}  // namespace anyattn

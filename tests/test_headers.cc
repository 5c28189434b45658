// SPDX-License-Identifier: Apache-2.0
// Owns the precompiled headers of the tests (cmake/AnyattnTesting.cmake) and holds no test itself; never run.

// SPDX-License-Identifier: Apache-2.0
#include "trust/keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace anyattn::trust {
namespace {

// DER in front of the 32 bytes, RFC 8410.
constexpr std::array<uint8_t, 12> kPublicHead{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
constexpr std::array<uint8_t, 16> kPrivateHead{0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06,
                                               0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20};
constexpr std::string_view kPublic = "PUBLIC KEY";
constexpr std::string_view kPrivate = "PRIVATE KEY";

void start() {
  static const bool started = sodium_init() >= 0;
  if (!started) throw std::runtime_error("libsodium does not start");
}

template <size_t HeadSize>
std::string write_pem(std::string_view label, const std::array<uint8_t, HeadSize>& head, const std::array<uint8_t, 32>& key) {
  std::vector<uint8_t> der(head.begin(), head.end());
  der.insert(der.end(), key.begin(), key.end());
  std::string text(sodium_base64_encoded_len(der.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), der.data(), der.size(), sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // the terminator
  sodium_memzero(der.data(), der.size());
  return fmt::format("-----BEGIN {}-----\n{}\n-----END {}-----\n", label, text, label);
}

template <size_t HeadSize>
std::array<uint8_t, 32> read_pem(std::string_view pem, std::string_view label, const std::array<uint8_t, HeadSize>& head) {
  const std::string begin = fmt::format("-----BEGIN {}-----", label), end = fmt::format("-----END {}-----", label);
  const size_t from = pem.find(begin);
  const size_t to = pem.find(end);
  if (from == std::string_view::npos || to == std::string_view::npos || to < from + begin.size())
    throw std::runtime_error(fmt::format("holds no \"{}\" in PEM form", begin));
  const std::string_view body = pem.substr(from + begin.size(), to - from - begin.size());
  std::array<uint8_t, HeadSize + 32> der{};
  size_t size = 0;
  const bool decoded = sodium_base642bin(der.data(), der.size(), body.data(), body.size(), "\r\n ", &size, nullptr,
                                         sodium_base64_VARIANT_ORIGINAL) == 0;
  if (!decoded || size != der.size() || !std::equal(head.begin(), head.end(), der.begin()))
    throw std::runtime_error(fmt::format("holds a {} that is not Ed25519", label));
  std::array<uint8_t, 32> key{};
  std::copy(der.begin() + HeadSize, der.end(), key.begin());
  return key;
}

std::array<uint8_t, crypto_sign_SECRETKEYBYTES> expanded(const Seed& seed, PublicKey& key) {
  std::array<uint8_t, crypto_sign_SECRETKEYBYTES> secret{};
  crypto_sign_seed_keypair(key.data(), secret.data(), seed.data());
  return secret;
}

const unsigned char* data_of(std::span<const std::byte> bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

}  // namespace

Seed new_seed() {
  start();
  Seed seed{};
  randombytes_buf(seed.data(), seed.size());
  return seed;
}

PublicKey public_key_of(const Seed& seed) {
  start();
  PublicKey key{};
  auto secret = expanded(seed, key);
  sodium_memzero(secret.data(), secret.size());
  return key;
}

std::string key_id(const PublicKey& key) {
  start();
  std::array<uint8_t, 32> digest{};
  crypto_generichash(digest.data(), digest.size(), key.data(), key.size(), nullptr, 0);
  std::string hex;
  for (size_t i = 0; i < 8; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string write_public_key(const PublicKey& key) { return write_pem(kPublic, kPublicHead, key); }
std::string write_private_key(const Seed& seed) { return write_pem(kPrivate, kPrivateHead, seed); }
PublicKey read_public_key(std::string_view pem) { return read_pem(pem, kPublic, kPublicHead); }
Seed read_private_key(std::string_view pem) { return read_pem(pem, kPrivate, kPrivateHead); }

Signature sign(std::span<const std::byte> bytes, const Seed& seed) {
  start();
  PublicKey key{};
  auto secret = expanded(seed, key);
  Signature signature{};
  crypto_sign_detached(signature.data(), nullptr, data_of(bytes), bytes.size(), secret.data());
  sodium_memzero(secret.data(), secret.size());
  return signature;
}

bool verifies(std::span<const std::byte> bytes, const Signature& signature, const PublicKey& key) {
  start();
  return crypto_sign_verify_detached(signature.data(), data_of(bytes), bytes.size(), key.data()) == 0;
}

}  // namespace anyattn::trust

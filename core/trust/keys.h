// SPDX-License-Identifier: Apache-2.0
// Ed25519 keys in the forms that OpenSSL reads, and signatures over bytes. Included by discovery and the API.
// Decides nothing about whom to trust.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace anyattn::trust {

using PublicKey = std::array<uint8_t, 32>;
using Seed = std::array<uint8_t, 32>;       // the private half
using Signature = std::array<uint8_t, 64>;  // raw, as `openssl pkeyutl -sign -rawin` writes it

// Throws std::runtime_error where the system gives no random bytes.
Seed new_seed();
PublicKey public_key_of(const Seed& seed);
// 16 hexadecimal digits that name a key to people.
std::string key_id(const PublicKey& key);

// PEM: "PUBLIC KEY" (SubjectPublicKeyInfo), "PRIVATE KEY" (PKCS #8). Reading throws std::runtime_error with what is wrong.
std::string write_public_key(const PublicKey& key);
std::string write_private_key(const Seed& seed);
PublicKey read_public_key(std::string_view pem);
Seed read_private_key(std::string_view pem);

Signature sign(std::span<const std::byte> bytes, const Seed& seed);
bool verifies(std::span<const std::byte> bytes, const Signature& signature, const PublicKey& key);

}  // namespace anyattn::trust

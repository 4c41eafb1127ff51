// Whether files may be believed. Kernels are code that runs in this process, and a checksum without a key says nothing
// of who wrote them: so they count only where no other user can have put or changed them.
#pragma once

#include <filesystem>
#include <system_error>

#include "ir/error.h"

namespace srjit {

/// Whether what is in `directory` may be believed. `directory` is canonical (no links in its name).
///
/// It must be root's or this user's, and not be writable by group or others. So must each directory above it, as
/// OpenSSH has it for keys, since who may rename one of them can put another in its place; but above,
/// - a directory with the sticky bit may be writable (/tmp): there, only owners rename what is theirs;
/// - one may be writable by its owner's private group, of the owner's name and without other members, as a umask of 002
///   leaves it;
/// - in a user namespace, users from outside of it are root as well, as both have the same number there.
///
/// They are checked from the root down, so each name that was found stays what it is while the next is looked at, and
/// what is opened by its name afterwards is what was checked. For root, only root's files are root's own. Errors:
/// kMachine, with what is wrong, and what mends it.
Status checkTrustOfDirectory(const std::filesystem::path& directory);

/// Whether `file`, in a directory that is trusted, may be believed and changed: a regular file of this user or root,
/// that group and others cannot write and that has no other name, or nothing at all. Follows no link. Errors as above.
Status checkTrustOfFile(const std::filesystem::path& file);

/// Makes what is missing of `directory`, each for its owner alone, whatever the umask.
std::error_code makePrivateDirectories(const std::filesystem::path& directory);

/// Makes an empty file for its owner alone if there is nothing of that name; follows no link. Opens nothing, as closing
/// a file lets go of all locks that this process has on it.
void makePrivateFile(const std::filesystem::path& file) noexcept;

}  // namespace srjit

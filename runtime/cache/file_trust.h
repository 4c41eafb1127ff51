// Whether files of the cache are trusted. Kernels are code that runs in this process, and an unkeyed checksum does not
// authenticate their writer. So a file is trusted only if no other user can have created or changed it.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "ir/error.h"

namespace srjit {

/// Checks that the content of `directory` can be trusted. Precondition: `directory` is canonical (no links in its
/// name).
///
/// It must be owned by root or this user, and not be writable by group or others. The same holds for each directory
/// above it, as OpenSSH requires for keys, since a user who can rename one of them can replace it. Exceptions above:
/// - a directory with the sticky bit may be writable (/tmp): only owners can rename their entries there;
/// - a directory may be writable by its owner's private group (of the owner's name, without other members), as a umask
///   of 002 leaves it;
/// - in a user namespace, users outside of it count as root, since both have the same number there.
///
/// The check goes from the root down. A checked name can no longer be replaced, so a file opened by its name afterwards
/// is the file that was checked. If this user is root, only files of root pass. Errors: kMachine, with the fault and
/// its remedy.
Status checkTrustOfDirectory(const std::filesystem::path& directory);

/// Checks that `file` of a trusted directory, which `facts` were read of without following a link, may be read and
/// replaced: a regular file of this user or root with one hard link that group and others cannot write. Errors: as
/// above.
Status checkTrustOfFile(const std::filesystem::path& file, const struct stat& facts);

/// Creates the missing directories of a path with access for their owner only, whatever the umask.
std::error_code makePrivateDirectories(const std::filesystem::path& directory);

}  // namespace srjit

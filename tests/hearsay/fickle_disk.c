/* A disk that forgets what it failed to write, as Linux's page cache does: to be preloaded.
 *
 * Of the files in $FICKLE_FOLDER, $FICKLE_DISK holds what a power cut would leave. A write marks
 * its bytes dirty; fsync copies dirty bytes there and marks them clean. While a file "failing"
 * stands in the folder, fsync of a file ending in "-wal" copies nothing, marks its dirty bytes
 * clean all the same, and fails with EIO: the next one will report success.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, MOST = 1 << 16 };
static struct { ino_t inode; off_t from, to; } dirty[MOST];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Give the name of a file in the folder, without the folder; NULL for any other. */
static const char *known(int fd, char *path) {
    char link[64];
    const char *folder = getenv("FICKLE_FOLDER");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    size_t prefix = strlen(folder);
    return !strncmp(path, folder, prefix) && path[prefix] == '/' ? path + prefix + 1 : NULL;
}

static void mark(int fd, off_t from, ssize_t length) {
    char path[PATH];
    struct stat found;
    if (length <= 0 || !known(fd, path) || fstat(fd, &found)) return;
    pthread_mutex_lock(&lock);
    if (count == MOST) abort();
    dirty[count].inode = found.st_ino;
    dirty[count].from = from;
    dirty[count++].to = from + length;
    pthread_mutex_unlock(&lock);
}

ssize_t write(int fd, const void *data, size_t length) {
    off_t from = lseek(fd, 0, SEEK_CUR);
    ssize_t done = REAL(write)(fd, data, length);
    mark(fd, from, done);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t from) {
    ssize_t done = REAL(pwrite)(fd, data, length, from);
    mark(fd, from, done);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t from) {
    ssize_t done = REAL(pwrite64)(fd, data, length, from);
    mark(fd, from, done);
    return done;
}

/* Give the name that a file of the folder has on the disk; NULL for any other. Which files there
 * are is on the disk at once. */
static const char *imaged(const char *path, char *image) {
    const char *folder = getenv("FICKLE_FOLDER");
    size_t prefix = strlen(folder);
    if (strncmp(path, folder, prefix)) return NULL;
    snprintf(image, 2 * PATH, "%s%s", getenv("FICKLE_DISK"), path + prefix);
    return image;
}

int unlink(const char *path) {
    char image[2 * PATH];
    if (imaged(path, image)) REAL(unlink)(image);
    return REAL(unlink)(path);
}

int link(const char *from, const char *to) {
    char image[2 * PATH], other[2 * PATH];
    if (imaged(from, image) && imaged(to, other)) REAL(link)(image, other);
    return REAL(link)(from, to);
}

int rename(const char *from, const char *to) {
    char image[2 * PATH], other[2 * PATH];
    if (imaged(from, image) && imaged(to, other)) REAL(rename)(image, other);
    return REAL(rename)(from, to);
}

int fsync(int fd) {
    char path[PATH], image[2 * PATH], failing[2 * PATH];
    struct stat found;
    const char *name = known(fd, path);
    if (!name || fstat(fd, &found)) return REAL(fsync)(fd);
    snprintf(image, sizeof image, "%s/%s", getenv("FICKLE_DISK"), name);
    snprintf(failing, sizeof failing, "%s/failing", getenv("FICKLE_FOLDER"));
    size_t length = strlen(name);
    int fails = length > 4 && !strcmp(name + length - 4, "-wal") && !access(failing, F_OK);
    int from = open(path, O_RDONLY), to = fails ? -1 : open(image, O_RDWR | O_CREAT, 0600);
    if (!fails && ftruncate(to, found.st_size)) abort();
    pthread_mutex_lock(&lock);
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (dirty[i].inode != found.st_ino) {
            dirty[kept++] = dirty[i];
            continue;
        }
        for (off_t at = dirty[i].from; !fails && at < dirty[i].to && at < found.st_size;) {
            char bytes[4096];
            size_t most = dirty[i].to - at < 4096 ? dirty[i].to - at : 4096;
            ssize_t got = pread(from, bytes, most, at);
            if (got <= 0) break;
            if (REAL(pwrite)(to, bytes, got, at) != got) abort();
            at += got;
        }
    }
    count = kept;
    pthread_mutex_unlock(&lock);
    close(from);
    if (to >= 0) close(to);
    if (!fails) return 0;
    errno = EIO;
    return -1;
}

int fdatasync(int fd) { return fsync(fd); }

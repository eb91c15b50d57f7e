/* A system that says it can cut datagrams apart (UDP GSO), and fails when it is asked to: for LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

ssize_t sendmsg(int socket, const struct msghdr *message, int flags)
{
    struct msghdr *all = (struct msghdr *)message;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(all); part; part = CMSG_NXTHDR(all, part)) {
        if (part->cmsg_level == IPPROTO_UDP && part->cmsg_type == UDP_SEGMENT) {
            static const char said[] = "refused to cut datagrams\n";
            if (write(STDERR_FILENO, said, strlen(said)) < 0) { }
            errno = EIO;
            return -1;
        }
    }
    ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, "sendmsg");
    return next(socket, message, flags);
}

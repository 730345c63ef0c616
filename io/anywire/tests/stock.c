/* A stock ENet program for tests: joins a host or hosts one joiner, as a game linked to libenet does.
 *
 *   stock join PORT ID    connects with ID as data; sends "ping" reliably on channel 0, "loose" unsequenced on 1 and "far" reliably on
 *                         ENet channel 6; prints what it hears; leaves when it hears "bye", or on a disconnection, whose data it prints
 *   stock host            prints its port, then for each joiner its data and what it says; answers "echo:" and what it heard on the same
 *                         channel; on "leave" it disconnects the joiner with 77
 */
#include <enet/enet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void say(ENetPeer *peer, int channel, const char *text, enet_uint32 flags) {
    enet_peer_send(peer, (enet_uint8) channel, enet_packet_create(text, strlen(text), flags));
}

int main(int argc, char **argv) {
    ENetEvent event;
    if (argc < 2 || enet_initialize() != 0) return 2;
    int hosting = strcmp(argv[1], "host") == 0;
    ENetAddress address = { ENET_HOST_ANY, 0 };
    ENetHost *host;
    if (hosting) {
        enet_address_set_host(&address, "127.0.0.1");
        host = enet_host_create(&address, 8, 0, 0, 0);
        if (!host) return 2;
        enet_socket_get_address(host->socket, &address);
        printf("port %u\n", address.port);
    } else {
        host = enet_host_create(NULL, 1, 0, 0, 0);
        enet_address_set_host(&address, "127.0.0.1");
        address.port = (enet_uint16) atoi(argv[2]);
        if (!host || !enet_host_connect(host, &address, 255, (enet_uint32) strtoul(argv[3], NULL, 10))) return 2;
    }
    fflush(stdout);
    for (int idle = 0; idle < 3000;) {
        int got = enet_host_service(host, &event, 10);
        if (got < 0) return 2;
        if (got == 0) { idle++; continue; }
        switch (event.type) {
        case ENET_EVENT_TYPE_CONNECT:
            printf("connected %u channels %u mtu %u\n", event.data, (unsigned) event.peer->channelCount, event.peer->mtu);
            if (!hosting) {
                say(event.peer, 0, "ping", ENET_PACKET_FLAG_RELIABLE);
                say(event.peer, 1, "loose", ENET_PACKET_FLAG_UNSEQUENCED);
                say(event.peer, 6, "far", ENET_PACKET_FLAG_RELIABLE);
            }
            break;
        case ENET_EVENT_TYPE_RECEIVE: {
            char text[256], answer[300];
            size_t len = event.packet->dataLength < 255 ? event.packet->dataLength : 255;
            memcpy(text, event.packet->data, len);
            text[len] = 0;
            printf("heard %u %s\n", event.channelID, text);
            enet_packet_destroy(event.packet);
            if (hosting) {
                snprintf(answer, sizeof answer, "echo:%s", text);
                say(event.peer, event.channelID, answer, ENET_PACKET_FLAG_RELIABLE);
                if (strcmp(text, "leave") == 0) enet_peer_disconnect_later(event.peer, 77);
            } else if (strcmp(text, "bye") == 0) {
                enet_peer_disconnect(event.peer, 0);
            }
            break;
        }
        case ENET_EVENT_TYPE_DISCONNECT:
            printf("disconnected %u\n", event.data);
            fflush(stdout);
            enet_host_destroy(host);
            return 0;
        default:
            break;
        }
        fflush(stdout);
    }
    return 1;
}

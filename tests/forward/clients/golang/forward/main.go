// A client with github.com/IBM/fluent-forward-go. Both libraries in one program would register the same msgpack extension.
package main

import (
	"crypto/tls"
	"fmt"

	"github.com/IBM/fluent-forward-go/fluent/client"
	"github.com/IBM/fluent-forward-go/fluent/protocol"
	"headrace/tests/forward/clients/order"
)

func send(order order.Order) error {
	factory := &client.ConnFactory{Network: "tcp", Address: fmt.Sprintf("%s:%d", order.Host, order.Port)}
	if order.Network == "tls" {
		factory.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	}
	sender := client.New(client.ConnectionOptions{
		Factory: factory, RequireAck: order.Ack, AuthInfo: client.AuthInfo{SharedKey: []byte(order.SharedKey)},
	})
	sender.Hostname = order.Hostname
	if err := sender.Connect(); err != nil {
		return err
	}
	if err := sender.Handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	for n := 0; n < order.Count; n += order.Batch {
		var entries protocol.EntryList
		for i := n; i < n+order.Batch && i < order.Count; i++ {
			entries = append(entries, protocol.EntryExt{Timestamp: protocol.EventTimeNow(), Record: order.Record(i)})
		}
		var err error
		switch order.Mode {
		case "Forward":
			err = sender.SendForward(order.Tag, entries)
		case "PackedForward":
			err = sender.SendPacked(order.Tag, entries)
		case "CompressedPackedForward":
			err = sender.SendCompressed(order.Tag, entries)
		default:
			for i := range entries {
				if err = sender.SendMessageExt(order.Tag, entries[i].Record); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return sender.Disconnect()
}

func main() {
	order.Run(send)
}

// A yardstick: the smallest receiver in Go that keeps the same promise for PackedForward. It stores the same records with the
// same headers (ids over tag, chunk and entries, nine decimals, JSON bodies), idempotent, acks=all, zstd, and acknowledges a
// message when Kafka has stored all of it. It has no limits, no quarantine, no TLS and no metrics: what those cost shows in the
// comparison. One argument each: the address to listen on, Kafka's bootstrap servers, the topic.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/tinylib/msgp/msgp"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/crypto/blake2b"
)

var specVersion, kind, jsonType = []byte("1.0"), []byte("headrace.forward.event"), []byte("application/json")

// eventTime is ext 0: u32 seconds and u32 nanoseconds.
type eventTime [8]byte

func (t *eventTime) ExtensionType() int8            { return 0 }
func (t *eventTime) Len() int                       { return 8 }
func (t *eventTime) MarshalBinaryTo(b []byte) error { copy(b, t[:]); return nil }
func (t *eventTime) UnmarshalBinary(b []byte) error { copy(t[:], b); return nil }

func field(hash interface{ Write([]byte) (int, error) }, data []byte) {
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(data)))
	hash.Write(size[:])
	hash.Write(data)
}

type pending struct {
	left   atomic.Int64
	failed atomic.Bool
	done   chan struct{}
	chunk  string
}

func serve(conn net.Conn, client *kgo.Client, topic string, partition int32) error {
	defer conn.Close()
	source := []byte("/forward/" + conn.RemoteAddr().(*net.TCPAddr).IP.String())
	reader := msgp.NewReaderSize(conn, 256<<10)
	order := make(chan *pending, 1024)
	defer close(order)
	go func() {
		var reply []byte
		for next := range order {
			<-next.done
			if next.failed.Load() {
				conn.Close()
				return
			}
			reply = msgp.AppendMapHeader(reply[:0], 1)
			reply = msgp.AppendString(reply, "ack")
			reply = msgp.AppendString(reply, next.chunk)
			conn.Write(reply)
		}
	}()
	for {
		size, err := reader.ReadArrayHeader()
		if err != nil {
			return err
		}
		if size != 3 {
			return fmt.Errorf("only PackedForward")
		}
		tag, err := reader.ReadString()
		if err != nil {
			return err
		}
		body, err := reader.ReadBytes(nil)
		if err != nil {
			return err
		}
		options, err := reader.ReadMapHeader()
		if err != nil {
			return err
		}
		chunk := ""
		for ; options > 0; options-- {
			key, err := reader.ReadString()
			if err != nil {
				return err
			}
			if key == "chunk" {
				chunk, err = reader.ReadString()
			} else {
				err = reader.Skip()
			}
			if err != nil {
				return err
			}
		}
		hash, _ := blake2b.New(16, nil)
		for _, part := range [][]byte{[]byte("forward"), []byte(tag), []byte(chunk), body} {
			field(hash, part)
		}
		prefix := "d." + hex.EncodeToString(hash.Sum(nil))[:24]
		attributes := []byte(fmt.Sprintf(`{"chunk":%q}`, chunk))
		subject := []byte(tag)
		now := time.Now()
		var records []*kgo.Record
		rest := body
		for len(rest) > 0 {
			if _, rest, err = msgp.ReadArrayHeaderBytes(rest); err != nil {
				return err
			}
			var at eventTime
			if rest, err = msgp.ReadExtensionBytes(rest, &at); err != nil {
				return err
			}
			var value bytes.Buffer
			end, err := msgp.Skip(rest)
			if err != nil {
				return err
			}
			if _, err = msgp.UnmarshalAsJSON(&value, rest[:len(rest)-len(end)]); err != nil {
				return err
			}
			rest = end
			seconds, nanoseconds := binary.BigEndian.Uint32(at[:4]), binary.BigEndian.Uint32(at[4:])
			when := time.Unix(int64(seconds), int64(nanoseconds)).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000000Z")
			id := fmt.Appendf(nil, "%s%08x", prefix, len(records))
			records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: value.Bytes(), Timestamp: now,
				Headers: []kgo.RecordHeader{
					{Key: "ce_specversion", Value: specVersion}, {Key: "ce_id", Value: id}, {Key: "ce_source", Value: source},
					{Key: "ce_type", Value: kind}, {Key: "ce_subject", Value: subject}, {Key: "ce_time", Value: when},
					{Key: "content-type", Value: jsonType}, {Key: "ce_attributes", Value: attributes},
				}})
		}
		next := &pending{done: make(chan struct{}), chunk: chunk}
		next.left.Store(int64(len(records)))
		order <- next
		for _, record := range records {
			client.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
				if err != nil {
					next.failed.Store(true)
				}
				if next.left.Add(-1) == 0 {
					close(next.done)
				}
			})
		}
	}
}

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[2]), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerBatchMaxBytes(1<<20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(1<<20),
	)
	if err == nil {
		err = client.Ping(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("ready")
	for n := int32(0); ; n++ {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func(partition int32) {
			if err := serve(conn, client, os.Args[3], partition); err != nil && err.Error() != "EOF" {
				fmt.Fprintln(os.Stderr, err)
			}
		}(n % partitions)
	}
}

const partitions = 12 // of the events topic, as `python -m headrace_common.topics` makes it
